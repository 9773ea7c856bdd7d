package main

// While anything runs, a thread of Go's runtime looks every 20 µs whether a processor is held by a system
// call that takes long, gives it to another thread where it is, and is woken another 50 µs late, since that
// is how exact Linux is with timers. For a router that did 7 % of all its work: its system calls are short,
// and those that are not have had their processor taken by whom they woke. So the kernel may be a millisecond
// late, which no timer of ours notices, and the thread looks every millisecond. It has to be said before that
// thread begins, which C alone can: see timer_slack_linux.c.

import "C"

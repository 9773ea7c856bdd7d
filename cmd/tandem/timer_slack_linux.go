package main

// While anything runs, a thread of Go's runtime looks every 20 µs whether a long system call holds a
// processor. If so, it gives the processor to another thread. Linux wakes that runtime thread another 50 µs
// late, since that is how exact Linux is with timers. For a router these looks were 7 % of all its work. Its
// system calls are short; by the time a long one is noticed, the threads that it woke have already taken the
// processor. So the kernel may be a millisecond late, which no timer of ours notices, and the thread looks
// every millisecond. The setting must be made before that thread begins, which only C can do: see
// timer_slack_linux.c.

import "C"

package kvevents

// Context is a ZMQ context, with one I/O thread, that followers and publishers share. The zero value is ready: the thread starts with the first user and
// ends with the last. Safe from any goroutine; must not be copied.
type Context struct{}

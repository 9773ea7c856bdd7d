package http1

// notifier is a connection that tells itself when the other side has hung up.
type notifier interface {
	// OnHangUp has f called once, when the other side closes the connection or its own direction, and at once if
	// that has already happened. f does not block. stop ends the watch; f may run until stop returns, and not
	// later.
	OnHangUp(f func()) (stop func())
}

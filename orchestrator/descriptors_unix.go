//go:build linux || darwin

package orchestrator

import "syscall"

// openFiles returns how many file descriptors this process may have open, 0 if that is unknown. Go has
// raised the soft limit to the hard one by then.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

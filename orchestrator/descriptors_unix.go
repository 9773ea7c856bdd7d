//go:build linux || darwin

package orchestrator

import "syscall"

// openFiles returns how many file descriptors this process may open; 0: unknown. Go has already raised the
// soft limit to the hard limit.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

//go:build linux || darwin

package orchestrator

import "syscall"

// openFiles is how many file descriptors this process may have open, 0 where nobody knows. Go has raised the
// soft limit to the hard one by then.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}

//go:build !unix

package orchestrator

func openFiles() uint64 { return 0 }

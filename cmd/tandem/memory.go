package main

import (
	"os"
	"runtime"
)

// ballast is memory that is reserved and never touched, so it is in no resident set. It only makes the
// collector wait until the heap has grown by as much: a router's live heap is a few megabytes, and at
// GOGC=100 it would be collected a hundred times a second under load.
const ballast = 48 << 20

// holdBallast reserves the ballast until release is called. With GOGC set, the operator's choice holds and
// nothing is reserved.
func holdBallast() (release func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	b := make([]byte, ballast)
	return func() { runtime.KeepAlive(b) }
}

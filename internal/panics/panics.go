// Package panics recovers panics of goroutines that serve no request. A panic is logged and ends nothing
// else, so the process goes on.
package panics

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Pause is how long what lasts waits after a panic before it begins anew.
const Pause = time.Second

// Guard contains panics. Every goroutine of this router that serves no request runs in a guard. Safe for
// concurrent use.
type Guard struct {
	Log *slog.Logger
}

// Contain runs f and reports whether it panicked, which is logged. where names f in the log.
func (g Guard) Contain(where string, f func()) (panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			panicked = true
			g.Report(where, v, debug.Stack())
		}
	}()
	f()
	return false
}

// KeepRunning runs f until it returns, and anew after a panic, as long as ctx lasts.
func (g Guard) KeepRunning(ctx context.Context, where string, f func()) {
	for g.Contain(where, f) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(Pause):
		}
	}
}

// Report logs a panic that the caller has recovered.
func (g Guard) Report(where string, value any, stack []byte) {
	g.Log.Error("the router panicked, which is a bug of it: please report it",
		"where", where, "error", fmt.Sprintf("panic: %v", value), "stack", string(stack))
}

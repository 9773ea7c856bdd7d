package panics

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logged returns a guard and its log.
func logged() (Guard, *bytes.Buffer) {
	var log bytes.Buffer
	return Guard{Log: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

// A panic is logged once with its place and its stack, and goes no further.
func TestAPanicIsContained(t *testing.T) {
	g, log := logged()
	if g.Contain("test", func() {}) || log.Len() > 0 {
		t.Errorf("what ends well is taken for a panic: %s", log)
	}
	if !g.Contain("test", func() { panic("a bug") }) {
		t.Error("a panic is taken for a good end")
	}
	got := log.String()
	for _, want := range []string{"level=ERROR", "where=test", `error="panic: a bug"`, "panics_test.go"} {
		if strings.Count(got, want) == 0 {
			t.Errorf("the log does not tell %s: %s", want, got)
		}
	}
}

// A lasting function is started again after a panic and a pause, until it returns or its context ends.
func TestWhatLastsBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := logged()
		began, start := 0, time.Now()
		g.KeepRunning(t.Context(), "test", func() {
			if began++; began < 4 {
				panic(errors.New("a bug"))
			}
		})
		if took := time.Since(start); began != 4 || took != 3*Pause {
			t.Errorf("it began %d times in %v", began, took)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		g.KeepRunning(ctx, "test", func() { panic("a bug") })
	})
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The timers of all threads of a router may be a millisecond late, but not those of a simulated engine:
// see timer_slack_linux.go.
func TestTimerSlack(t *testing.T) {
	sim := start(t, "sim", "sim", "--listen", "127.0.0.1:0")
	router := start(t, "router", "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2")
	for _, c := range []struct {
		of   *process
		want string
	}{{router, "1000000"}, {sim, "50000"}} {
		eventually(t, 20*time.Second, func() error { return c.of.allSlack(c.want) })
	}
}

// allSlack returns an error if a thread of the process has another timer slack, or if the process does not
// have many threads yet.
func (p *process) allSlack(want string) error {
	p.t.Helper()
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/task/*")
	if len(threads) < 4 {
		return fmt.Errorf("%s has %d threads", p.name, len(threads))
	}
	for _, thread := range threads {
		got, err := os.ReadFile("/proc/" + filepath.Base(thread) + "/timerslack_ns")
		switch {
		case errors.Is(err, syscall.EPERM):
			p.t.Skip("the slack of others is for CAP_SYS_NICE to see")
		case err != nil:
			return err
		case strings.TrimSpace(string(got)) != want:
			return fmt.Errorf("a thread of %s has a slack of %s", p.name, got)
		}
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errNotYet = errors.New("not yet")

// TestAWaitLeavesOutStandingInLine: a wait has a bound on a quiet machine. The time in which a process
// waits for a CPU does not count, but every wait ends some time.
func TestAWaitLeavesOutStandingInLine(t *testing.T) {
	const limit = 2 * time.Second
	for name, c := range map[string]struct {
		share float64 // share of the time in which the process waits for a CPU
		came  time.Duration
		least time.Duration // least waiting time
		most  time.Duration
		held  bool
	}{
		"quiet, in time":       {0, time.Second, time.Second, time.Second + lookAgain, true},
		"quiet, too late":      {0, time.Hour, limit, limit + lookInLine + lookAgain, false},
		"busy, in time":        {.9, 15 * time.Second, 15 * time.Second, 15*time.Second + lookAgain, true},
		"busy, too late":       {.9, time.Hour, 10 * limit, 10*limit + 10*lookInLine, false},
		"it never gets a turn": {1, time.Hour, 24 * limit, 24*limit + 24*lookInLine, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				clock := newFairTime(func() map[int]time.Duration {
					stood := time.Duration(c.share * float64(time.Since(begun)))
					return map[int]time.Duration{1: 0, 2: stood, 3: stood / 2}
				})
				err := clock.eventually(t.Context(), limit, func() error {
					if time.Since(begun) < c.came {
						return errNotYet
					}
					return nil
				})
				if took := time.Since(begun); (err == nil) != c.held || took < c.least || took > c.most {
					t.Errorf("%v after %v, want %v after %v to %v", err, took, c.held, c.least, c.most)
				}
			})
		})
	}
}

// TestANewProcessIsNotCreditedWithItsPast: time that a process waited for a CPU before the clock saw it
// does not extend the bound.
func TestANewProcessIsNotCreditedWithItsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		clock := newFairTime(func() map[int]time.Duration {
			if time.Since(begun) < time.Second {
				return nil
			}
			return map[int]time.Duration{7: time.Hour}
		})
		time.Sleep(3 * time.Second)
		if got := clock.elapsed(); got != 3*time.Second {
			t.Errorf("%v of 3 s", got)
		}
	})
}

// TestAnInterruptEndsAWait checks that an interrupt ends a wait at once.
func TestAnInterruptEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		clock := newFairTime(func() map[int]time.Duration { return nil })
		err := clock.eventually(ctx, time.Hour, func() error { return errNotYet })
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// fakeProcess runs a script in its own process group until the test ends.
func fakeProcess(t *testing.T, script string) *process {
	t.Helper()
	p, err := startProcess("fake", t.TempDir(), nil, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop([]*process{p}, 0); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestWorkIsTold checks that a process counts as working when it writes output or uses the CPU, and as
// stuck when it does neither.
func TestWorkIsTold(t *testing.T) {
	const still = 1500 * time.Millisecond
	did := func(second float64, said, used bool) (w work) {
		if said {
			w.said = int64(100 * second)
		}
		if used {
			w.used = time.Duration(second * float64(time.Second))
		}
		return w
	}
	for name, c := range map[string]struct {
		did   func(second float64) work
		stuck bool
	}{
		"says something":     {func(at float64) work { return did(at, true, false) }, false},
		"computes":           {func(at float64) work { return did(at, false, true) }, false},
		"looks around":       {func(at float64) work { return did(at/100, false, true) }, true},
		"does nothing":       {func(float64) work { return work{} }, true},
		"says it, and stops": {func(at float64) work { return did(min(at, 1), true, true) }, true},
		"is another process": {func(at float64) work { return did(10-at, false, true) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, stuck := time.Now(), false
				working := progress{
					still: still, did: func(*process) work { return c.did(time.Since(begun).Seconds()) },
				}
				watched := []*process{{name: name}}
				for !stuck && time.Since(begun) < 4*still {
					stuck = working.stuck(watched) != nil
					time.Sleep(100 * time.Millisecond)
				}
				if stuck != c.stuck {
					t.Errorf("stuck %v after %v, want %v", stuck, time.Since(begun), c.stuck)
				}
				if took := time.Since(begun); stuck && took < still {
					t.Errorf("stuck after %v, before %v", took, still)
				}
			})
		})
	}
}

// TestWorkIsRead checks that the work of a process and its children is read from the system, even if they
// seldom get a CPU. An idle process shows no work while the others work.
func TestWorkIsRead(t *testing.T) {
	idle := fakeProcess(t, `sleep 1000`)
	for name, c := range map[string]struct {
		script string
		worked func(now, before work) bool
	}{
		"says something": {
			`while :; do echo on; sleep 0.1; done`,
			func(now, before work) bool { return now.said > before.said },
		},
		"computes": {
			`while :; do :; done`,
			func(now, before work) bool { return now.used > before.used },
		},
		"a child computes": {
			`(while :; do :; done) & sleep 1000`,
			func(now, before work) bool { return now.used > before.used },
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeProcess(t, c.script)
			for before := p.work(); !c.worked(p.work(), before); {
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	if w := idle.work(); w.said > 0 || w.used >= leastWork {
		t.Errorf("the sleeping process wrote %d bytes and used %v", w.said, w.used)
	}
}

// TestAnEndIsAwaited checks that a wait for the end of a process continues while the process works.
func TestAnEndIsAwaited(t *testing.T) {
	ctx := t.Context()
	if err := fakeProcess(t, `exit 0`).awaitEnd(ctx, time.Minute, time.Minute); err != nil {
		t.Error(err)
	}
	err := fakeProcess(t, `sleep 1000`).awaitEnd(ctx, time.Minute, time.Second)
	if err == nil || !strings.Contains(err.Error(), "done nothing") {
		t.Errorf("a process that does nothing: %v", err)
	}
	err = fakeProcess(t, `while :; do :; done`).awaitEnd(ctx, 3*time.Second, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "has not ended after") {
		t.Errorf("a process that never ends: %v", err)
	}
}

// TestEnginesThatComeUpSlowlyAreAwaited checks that the suite waits for slow engines, but not for engines
// that do nothing.
func TestEnginesThatComeUpSlowlyAreAwaited(t *testing.T) {
	stuck := &engine{Name: "p0", Port: 1, process: fakeProcess(t, `echo importing; sleep 1000`)}
	err := awaitWorking(t.Context(), []*engine{stuck}, time.Second)
	holdsOr(t, err, "done nothing for 1s\nthe end of its log:\nimporting")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	slow := &engine{Name: "p1", Port: 1, process: fakeProcess(t, `while :; do echo on; sleep 0.2; done`)}
	holdsOr(t, awaitWorking(ctx, []*engine{slow}, time.Second), "engines p1 do not come up")
	ended := &engine{Name: "p0", Port: 1, process: fakeProcess(t, `echo "ValueError: no"; exit 1`)}
	<-ended.process.ended
	holdsOr(t, awaitHealthy(t.Context(), []*engine{ended}), "ValueError: no")
}

func TestWhatTheKernelTellsIsRead(t *testing.T) {
	if d, ok := parseLine([]byte("12 241828 1\n")); !ok || d != 241828 {
		t.Error(d, ok)
	}
	for _, odd := range []string{"", "a b c", "1 2"} {
		if _, ok := parseLine([]byte(odd)); ok {
			t.Errorf("%q is taken for a schedstat", odd)
		}
	}
	stat := "71 (a) b (c)) S 1 71 71 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 0 0\n"
	if used := parseUsed([]byte(stat)); used != 3*time.Second {
		t.Errorf("%v used", used)
	}
	if used := parseUsed([]byte("odd")); used != 0 {
		t.Errorf("%v used", used)
	}
	own := fmt.Sprintf("/proc/%d/stat", os.Getpid())
	if text, err := os.ReadFile(own); err != nil || len(text) == 0 {
		t.Errorf("%s: %v", own, err)
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Waits are bounded by the CPU time that was available to the engines, not by the clock. An engine that waits
// for a busy CPU is slow through no fault of its own. So a bound holds on a busy machine as on a quiet one,
// and a wait for something that never comes still ends.

// fairShare is the smallest share of time that a wait counts, however long processes waited for a CPU. It
// bounds every wait.
const fairShare = 1.0 / 24

// fairTime is time less the waits of the watched processes for a CPU. One goroutine uses it.
type fairTime struct {
	lines        func() map[int]time.Duration // how long each process has waited for a CPU, by process id
	seen         map[int]time.Duration
	at           time.Time
	passed, lost time.Duration
}

func newFairTime(lines func() map[int]time.Duration) *fairTime {
	return &fairTime{lines: lines, seen: lines(), at: time.Now()}
}

// elapsed is the fair time since the beginning. A process that waits for a CPU delays the processes that wait
// for it, so each interval counts the longest wait.
func (clock *fairTime) elapsed() time.Duration {
	lines, now := clock.lines(), time.Now()
	longest := time.Duration(0)
	for id, line := range lines {
		if before, known := clock.seen[id]; known {
			longest = max(longest, line-before)
		}
	}
	clock.passed, clock.lost = clock.passed+now.Sub(clock.at), clock.lost+longest
	clock.seen, clock.at = lines, now
	return max(clock.passed-clock.lost, time.Duration(fairShare*float64(clock.passed)))
}

// lookAgain is the pause between two tries. lookInLine is the time between two readings of the waits for a
// CPU.
const (
	lookAgain  = 50 * time.Millisecond
	lookInLine = 250 * time.Millisecond
)

// eventually tries until f has no error. It returns the last error after limit of clock.
func (clock *fairTime) eventually(ctx context.Context, limit time.Duration, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		if (limit <= 0 || time.Since(clock.at) > min(lookInLine, limit)) && clock.elapsed() >= limit {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

// eventually tries until f has no error. It returns the last error after limit of the run's fair time.
func eventually(ctx context.Context, limit time.Duration, f func() error) error {
	return runTime().eventually(ctx, limit, f)
}

// runTime is the fair time of all processes of the run.
func runTime() *fairTime {
	return newFairTime(func() map[int]time.Duration { return inLine(started.all()) })
}

// started are the process groups that this run has started or taken over and that have not ended. Safe for
// concurrent use.
var started groups

type groups struct {
	mu sync.Mutex
	by map[int]bool
}

func (g *groups) add(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil {
		g.by = map[int]bool{}
	}
	g.by[group] = true
}

func (g *groups) remove(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.by, group)
}

func (g *groups) all() map[int]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.by)
}

// inLine is how long the processes of the groups have waited for a CPU. Linux counts this for their first
// threads, which do an engine's work. It is empty if the system does not report it; then time is the clock's.
func inLine(groups map[int]bool) map[int]time.Duration {
	lines := map[int]time.Duration{}
	for _, m := range membersOf(groups) {
		text, err := os.ReadFile(filepath.Join(m.dir, "schedstat"))
		if line, ok := parseLine(text); err == nil && ok {
			lines[m.pid] = line
		}
	}
	return lines
}

// parseLine reads a schedstat: nanoseconds on a CPU, nanoseconds waiting for a CPU, and the number of time
// slices.
func parseLine(schedstat []byte) (time.Duration, bool) {
	fields := bytes.Fields(schedstat)
	if len(fields) != 3 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(n), err == nil
}

// work is the work of a group of processes so far.
type work struct {
	said int64         // bytes of its log
	used time.Duration // of CPUs
}

// work reads the work of a group, even of an ended one.
func (p *process) work() work {
	var w work
	if info, err := os.Stat(p.log); err == nil {
		w.said = info.Size()
	}
	for _, m := range members(p.pid) {
		if text, err := os.ReadFile(filepath.Join(m.dir, "stat")); err == nil {
			w.used += parseUsed(text)
		}
	}
	return w
}

// tick is the unit of /proc/PID/stat, the same on all Linux machines that Go supports.
const tick = 10 * time.Millisecond

// parseUsed reads a process's CPU time from its /proc/PID/stat. The name, in brackets, may hold any
// characters.
func parseUsed(stat []byte) time.Duration {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * tick
}

// progress tells working processes from stuck ones.
type progress struct {
	still time.Duration       // how long one may do nothing at all
	did   func(*process) work // nil to read the system's figures
	seen  map[*process]work
	moved map[*process]time.Time
}

// leastWork is the least that counts as work: even a hung process does a little now and then.
const leastWork = 50 * time.Millisecond

// stuck is the first process that has done nothing for too long, or nil.
func (g *progress) stuck(processes []*process) *process {
	now := time.Now()
	for _, p := range processes {
		did := g.work(p)
		before, known := g.seen[p]
		if !known || did.said != before.said || did.used-before.used >= leastWork || did.used < before.used {
			if g.seen == nil {
				g.seen, g.moved = map[*process]work{}, map[*process]time.Time{}
			}
			g.seen[p], g.moved[p] = did, now
		}
		if now.Sub(g.moved[p]) > g.still {
			return p
		}
	}
	return nil
}

func (g *progress) work(p *process) work {
	if g.did != nil {
		return g.did(p)
	}
	return p.work()
}

// awaitEnd waits until the process has ended, for limit at most, and for still at most while it does nothing.
func (p *process) awaitEnd(ctx context.Context, limit, still time.Duration) error {
	end := time.NewTimer(limit)
	look := time.NewTicker(time.Second)
	working := progress{still: still}
	defer end.Stop()
	defer look.Stop()
	for {
		select {
		case <-p.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return fmt.Errorf("%s has not ended after %v", p.name, limit)
		case <-look.C:
			if working.stuck([]*process{p}) != nil {
				return fmt.Errorf("%s has not ended, and has done nothing for %v", p.name, still)
			}
		}
	}
}

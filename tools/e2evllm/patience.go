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

// Waits are bounded by the CPU time that the engines could have used meanwhile, not by the clock. An engine
// that stands in line for a CPU on which other work runs is slow, and not at fault. So a bound holds on a
// busy machine as on a quiet one, and a wait for something that never comes still ends.

// fairShare is the smallest share of time that a wait counts, however long processes stood in line. It
// bounds every wait.
const fairShare = 1.0 / 24

// fairTime is time less what the watched processes stood in line for a CPU. One goroutine uses it.
type fairTime struct {
	lines        func() map[int]time.Duration // how long each process has stood in line, by its number
	seen         map[int]time.Duration
	at           time.Time
	passed, lost time.Duration
}

func newFairTime(lines func() map[int]time.Duration) *fairTime {
	return &fairTime{lines: lines, seen: lines(), at: time.Now()}
}

// elapsed is how much there was since the beginning. A process in line keeps those waiting that it works
// for, so of each while the longest line counts.
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

// lookAgain is the rest between two tries. lookInLine is the time between two looks at which processes stand
// in line.
const (
	lookAgain  = 50 * time.Millisecond
	lookInLine = 250 * time.Millisecond
)

// eventually tries until f has no error, and returns the last one after limit of clock.
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

// eventually tries until f has no error, and returns the last one after limit of the run's fair time.
func eventually(ctx context.Context, limit time.Duration, f func() error) error {
	return runTime().eventually(ctx, limit, f)
}

// runTime is the fair time of all that the run has started.
func runTime() *fairTime {
	return newFairTime(func() map[int]time.Duration { return inLine(started.all()) })
}

// started are the groups of processes that this run has started or taken over and that have not ended. Safe
// for concurrent use.
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

// inLine is how long the processes of the groups have stood in line. Linux counts this for their first
// threads, which do an engine's work. It is empty where the system does not tell; then time is the clock's.
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

// parseLine reads a schedstat: nanoseconds on a CPU, nanoseconds in line for one, and how often it had one.
func parseLine(schedstat []byte) (time.Duration, bool) {
	fields := bytes.Fields(schedstat)
	if len(fields) != 3 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(n), err == nil
}

// work is what a group of processes has done so far.
type work struct {
	said int64         // bytes of its log
	used time.Duration // of CPUs
}

// work reads it, also where the group has ended.
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

// tick is the unit of /proc/PID/stat, which Linux has not changed for any machine that Go runs on.
const tick = 10 * time.Millisecond

// parseUsed reads how long a process has used CPUs from its /proc/PID/stat; its name, in brackets, may hold
// anything.
func parseUsed(stat []byte) time.Duration {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * tick
}

// progress tells processes that work from those that do not any more.
type progress struct {
	still time.Duration       // how long one may do nothing at all
	did   func(*process) work // nil for what the system says
	seen  map[*process]work
	moved map[*process]time.Time
}

// leastWork is what counts as work: a process that has hung looks around now and then.
const leastWork = 50 * time.Millisecond

// stuck is the first of the processes that has done nothing for too long, nil for none.
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

// awaitEnd waits until the process has ended, limit at most, and no longer than still where it does nothing.
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

package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// series are the samples of a /metrics page, by name and labels as the page has them.
type series map[string]float64

func scrape(ctx context.Context, url string) (series, error) {
	body, err := get(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	found := series{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			found[line[:at]] = v
		}
	}
	return found, nil
}

// sum adds up the samples of a name that have all these labels. Each label is written as name="value".
func (s series) sum(name string, labels ...string) (total float64, found bool) {
next:
	for key, v := range s {
		rest, ok := strings.CutPrefix(key, name)
		if !ok || rest != "" && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		total, found = total+v, true
	}
	return total, found
}

func label(name, value string) string { return fmt.Sprintf("%s=%q", name, value) }

// watch records room while a phase runs: the free blocks that each decode engine reports, and the free blocks
// in the router's ledger.
type watch struct {
	engines []*engine
	router  *router
	looks   []look
	end     context.CancelFunc
	ended   chan struct{}
}

// look is one reading of all numbers: the engines first, then the router.
type look struct {
	begun, asked time.Time // before the engines were asked, and when every engine had answered
	free         []int     // blocks, of each engine by its own gauge
	ledger       []int     // blocks, of each engine by the router's ledger; -1 unknown
	waiting      int       // requests that wait in the router for room
}

// lookInterval is the time between two looks. Reading a page costs an engine about 20 ms.
const lookInterval = 200 * time.Millisecond

// watchRoom begins to look. [watch.stop] ends it.
func (s *stage) watchRoom(ctx context.Context, r *router) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{router: r, end: cancel, ended: make(chan struct{})}
	for _, e := range s.engines {
		if e.Role == consumer {
			w.engines = append(w.engines, e)
		}
	}
	go w.run(ctx)
	return w
}

func (w *watch) stop() {
	w.end()
	<-w.ended
}

func (w *watch) run(ctx context.Context) {
	defer close(w.ended)
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if l, err := w.look(ctx); err == nil {
			w.looks = append(w.looks, l)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (w *watch) look(ctx context.Context) (look, error) {
	l := look{begun: time.Now(), free: make([]int, len(w.engines))}
	errs := make([]error, len(w.engines))
	var all sync.WaitGroup
	for i, e := range w.engines {
		all.Go(func() { l.free[i], errs[i] = e.free(ctx) })
	}
	all.Wait()
	l.asked = time.Now()
	for _, err := range errs {
		if err != nil {
			return l, err
		}
	}
	router, err := scrape(ctx, w.router.admin)
	if err != nil {
		return l, err
	}
	for _, e := range w.engines {
		free, known := router.sum("tandem_decode_free_blocks", label("replica", e.Name))
		if !known {
			free = -1
		}
		l.ledger = append(l.ledger, int(free))
	}
	waiting, _ := router.sum("tandem_queue_waiting")
	l.waiting = int(waiting)
	return l, nil
}

// free is the number of blocks that the engine can still give, by its gauge. One block of an engine is never
// given to a request.
func (e *engine) free(ctx context.Context) (int, error) {
	used, err := e.usage(ctx)
	return int(math.Round((1 - used) * float64(e.Blocks-1))), err
}

// pollInterval is the longest time between two looks of a router at an engine: the default of poll_interval,
// its jitter, and a busy engine's answer.
const pollInterval = 1500 * time.Millisecond

// excess is the number of blocks by which a ledger exceeded its engine's free blocks.
type excess struct {
	most int // above the engine's report
	// The largest excess beyond the blocks that the engine gave away within the poll interval before. The
	// ledger need not know these blocks yet.
	beyond int
	where  string // the worst case
	looks  int    // with both numbers known
}

// excess compares each ledger with the larger of the engine's reports before and after. Blocks that the
// engine gave to a request in between, or took back and gave again, are part of the sent blocks; blocks that
// it has yet to take back are part of the given-up blocks.
func (w *watch) excess(records []record, attempts []brokenOff) excess {
	x := excess{beyond: math.MinInt, most: math.MinInt}
	for k := range max(0, len(w.looks)-1) {
		for i, e := range w.engines {
			now, next := w.looks[k], w.looks[k+1]
			if now.ledger[i] < 0 {
				continue
			}
			x.looks++
			over := now.ledger[i] - max(now.free[i], next.free[i])
			from := now.begun.Add(-pollInterval - 2*w.slowest(k))
			beyond := over - came(records, e.Name, from, next.asked) -
				gaveUp(attempts, records, e.Name, from, next.asked)
			x.most = max(x.most, over)
			if beyond > x.beyond {
				x.beyond = beyond
				x.where = fmt.Sprintf("%s at %s: %d blocks free by the ledger, "+
					"%d by the engine and then %d, of %d",
					e.Name, now.asked.Format("15:04:05.000"), now.ledger[i], now.free[i], next.free[i],
					e.Blocks)
			}
		}
	}
	return x
}

// slowest is the longest of the looks around the k-th. If engines answer slowly, the router's own looks take
// as long and come so much later.
func (w *watch) slowest(k int) time.Duration {
	longest := time.Duration(0)
	for _, l := range w.looks[max(0, k-10):min(len(w.looks), k+2)] {
		longest = max(longest, l.asked.Sub(l.begun))
	}
	return longest
}

// came is the number of blocks that the engine gave away in that time: to requests sent to it then, and to
// running requests for their new tokens.
func came(records []record, name string, from, to time.Time) int {
	blocks := 0
	for _, r := range records {
		sent := r.sent()
		switch {
		case r.Decode != name || sent.After(to) || r.ended().Before(from):
		case sent.Before(from):
			blocks += r.generated(from, to)/blockTokens + 1
		default:
			blocks += (r.Prompt+r.Output)/blockTokens + 1
		}
	}
	return blocks
}

// brokenOff is an attempt that the router gave up: a trial of a pair or a replica, or a client's request that
// got the answer of another attempt.
type brokenOff struct {
	id     string // of the client's request, "" for a trial
	engine string
	at     time.Time
}

// canaryBlocks is the number of blocks of a trial: a prompt of 165 tokens with an answer of 8.
const canaryBlocks = (165+8)/blockTokens + 2

// gaveUp is the number of blocks of such attempts that the engine may still have had in that time. The ledger
// counts them while the attempts run, and not while the engine takes them back.
func gaveUp(attempts []brokenOff, records []record, name string, from, to time.Time) int {
	blocks := 0
	for _, a := range attempts {
		if a.engine != name || a.at.After(to) || a.at.Before(from) {
			continue
		}
		i := slices.IndexFunc(records, func(r record) bool { return r.ID == a.id })
		if i < 0 {
			blocks += canaryBlocks
		} else {
			blocks += (records[i].Prompt+records[i].Output)/blockTokens + 1
		}
	}
	return blocks
}

// brokenOffIn reads such attempts from a router's log. An engine on a slow machine may miss the time for an
// answer, and takes equally long to give the blocks back.
func brokenOffIn(log string) (attempts []brokenOff) {
	for _, m := range gaveUpOn.FindAllStringSubmatch(log, -1) {
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
			attempts = append(attempts, brokenOff{m[2], m[3], at})
		}
	}
	return attempts
}

var gaveUpOn = regexp.MustCompile(`(?m)^time=(\S+) .*msg="(?:` +
	`trial failed" (?:prefill=\S+ decode|replica)|trying again elsewhere" id=(\S+) phase=\S+ replica)=(\S+)`)

// generated is the number of the answer's tokens generated in that time, at an even rate.
func (r *record) generated(from, to time.Time) int {
	begun, ended := r.sent(), r.ended()
	if ended.Before(to) {
		to = ended
	}
	all := ended.Sub(begun)
	if all <= 0 {
		return 0
	}
	return int(math.Ceil(float64(r.Output) * float64(to.Sub(from)) / float64(all)))
}

// tightest returns the fewest free blocks of an engine by its own report and by its ledger, and the most
// requests that waited for room at once.
func (w *watch) tightest() (engine, ledger, waiting int) {
	engine, ledger = math.MaxInt, math.MaxInt
	for _, l := range w.looks {
		waiting = max(waiting, l.waiting)
		for i := range w.engines {
			engine, ledger = min(engine, l.free[i]), min(ledger, l.ledger[i])
		}
	}
	return engine, ledger, waiting
}

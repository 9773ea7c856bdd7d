package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// screen prints a line per request as it ends, and the summary. Safe for concurrent use.
type screen struct {
	out   io.Writer
	color bool

	mu       sync.Mutex // guards the following
	outcomes []*outcome
}

func newScreen(out io.Writer, color bool) *screen { return &screen{out: out, color: color} }

// ANSI colours by their meaning.
const (
	dim    = "\x1b[2m"
	bold   = "\x1b[1m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	plain  = "\x1b[0m"
)

func (s *screen) paint(color, text string) string {
	if !s.color {
		return text
	}
	return color + text + plain
}

const header = "request   pair       prompt  cached  fresh  transfer  prefill  handoff    TTFT   why"

// title says what runs and how to read the lines.
func (s *screen) title(h *house) {
	until := ""
	if h.o.Requests > 0 {
		until = "   (until the demo ends; --requests 0 goes on until ^C)"
	}
	fmt.Fprintf(s.out, "%s %d prefill (p) and %d decode (d) simulated engines, one router\n",
		s.paint(bold, "tandem demo:"), len(h.prefill), len(h.decode))
	fmt.Fprintf(s.out, "router %s   live page %s/%s\n", h.front, h.admin, until)
	fmt.Fprintln(s.out, s.paint(dim, "request: its id, for tandem why --admin "+h.admin+" while the demo runs; "+
		"pair: where the prompt was prefilled > where the answer was generated "+
		"(d alone: prefilled there itself); cached and fresh: prompt tokens, as "+
		"the engine found them; why: what the router knew before"))
	fmt.Fprintln(s.out, s.paint(bold, header))
}

// line prints one request.
func (s *screen) line(r *outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = append(s.outcomes, r)
	if r.record == nil {
		fmt.Fprintf(s.out, "%-9s %s\n", r.who, s.paint(red, "WRONG: "+r.wrong))
		return
	}
	rec := r.record
	pair := "  > " + rec.Decode
	prefill := "-"
	handoff := "-"
	moved := "-"
	if rec.Mode == "split" {
		pair = rec.Prefill + " > " + rec.Decode
		prefill = fmt.Sprintf("%.0f ms", rec.Phases.Prefill)
		handoff = fmt.Sprintf("%.2f ms", rec.Phases.Handoff)
		moved = fmt.Sprint(r.prompt - held(r))
	}
	cached := s.paint(green, fmt.Sprintf("%7d", r.cached))
	if r.cached == 0 {
		cached = s.paint(yellow, fmt.Sprintf("%7d", 0))
	}
	fmt.Fprintf(s.out, "%-9s %-9s %7d %s %6d %9s %8s %8s %7s   %s\n", r.who, pair, r.prompt, cached,
		r.prompt-r.cached, moved, prefill, handoff,
		fmt.Sprintf("%.0f ms", float64(r.ttft)/1e6), s.paint(dim, rec.Reason))
	if r.wrong != "" {
		fmt.Fprintln(s.out, s.paint(red, "          WRONG: "+r.wrong))
	}
}

// held is the number of prompt tokens that the decode replica had, so that they needed no transfer.
func held(r *outcome) int {
	if r.record.Decision == nil {
		return 0
	}
	return r.record.Decision.Held
}

func (s *screen) wrong() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.outcomes {
		if r.wrong != "" {
			n++
		}
	}
	return n
}

func (s *screen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outcomes)
}

// totals are the sums that the summary shows.
type totals struct {
	modes                        map[string]int
	prompt, cached, avail, moved int
	exact, predicted             int
	ttft                         []time.Duration
}

func (s *screen) totals() totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := totals{modes: map[string]int{}}
	for _, r := range s.outcomes {
		if r.record == nil {
			continue
		}
		t.modes[r.record.Mode]++
		t.prompt += r.prompt
		t.cached += r.cached
		t.avail += max(0, r.record.Available)
		t.ttft = append(t.ttft, r.ttft)
		if r.record.Mode == "split" {
			t.moved += r.prompt - held(r)
		}
		if r.record.Delivered >= 0 && r.record.Captured >= 0 {
			t.predicted++
			if r.record.Delivered == r.record.Captured {
				t.exact++
			}
		}
	}
	slices.Sort(t.ttft)
	return t
}

// summary prints the totals.
func (s *screen) summary(h *house) {
	t := s.totals()
	if len(t.ttft) == 0 {
		fmt.Fprintln(s.out, "no request ended")
		return
	}
	at := func(q float64) time.Duration {
		return t.ttft[min(len(t.ttft)-1, int(q*float64(len(t.ttft))))].Round(100 * time.Microsecond)
	}
	share := func(n, of int) string { return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(max(of, 1))) }
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s %d requests, %d wrong\n", s.paint(bold, "summary:"), s.count(), s.wrong())
	fmt.Fprintf(&b, "  prompt tokens    %d, cached %d (hit rate %s)\n",
		t.prompt, t.cached, share(t.cached, t.prompt))
	fmt.Fprintf(&b, "  prediction       %s of cached-token predictions exact\n", share(t.exact, t.predicted))
	fmt.Fprintf(&b, "  TTFT             p50 %v   p90 %v   p99 %v\n", at(.5), at(.9), at(.99))
	fmt.Fprintf(&b, "  placed           split %s, local %s, un-split %s\n", share(t.modes["split"], len(t.ttft)),
		share(t.modes["local"], len(t.ttft)), share(t.modes["unsplit"], len(t.ttft)))
	fmt.Fprintf(&b, "  transferred      %d tokens of KV from prefill to decode\n", t.moved)
	fmt.Fprintf(&b, "  leases left      %d\n", h.router.Leases())
	fmt.Fprint(s.out, b.String())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// pages are the /metrics of a router and of its engines at one moment.
type pages struct {
	router  series
	engines map[string]series
}

func (s *stage) pages(ctx context.Context, r *router) (p pages, err error) {
	p.engines = map[string]series{}
	if p.router, err = scrape(ctx, r.admin); err != nil {
		return p, err
	}
	for _, e := range s.engines {
		if p.engines[e.Name], err = scrape(ctx, e.url()); err != nil {
			return p, err
		}
	}
	return p, nil
}

// scarcity describes how scarce room was in a phase.
type scarcity struct {
	removed   []removed
	waited    int // requests that waited in the router for room
	crowd     int // that waited at once, at most
	fullest   int // blocks that the fullest decode engine had left
	promised  int // blocks that its ledger had left to promise, at the least
	preempted int // requests that an engine preempted
	excess    excess
}

// removed is the number of blocks that an engine evicted from its prefix cache.
type removed struct {
	engine string
	role   string
	blocks int
}

// scarcity compares the counters before a phase with those after it.
func (s *stage) scarcity(before, after pages, w *watch, records []record) *scarcity {
	grown := func(a, b series, name string, labels ...string) int {
		x, _ := a.sum(name, labels...)
		y, _ := b.sum(name, labels...)
		return int(y - x)
	}
	c := &scarcity{excess: w.excess(records, brokenOffIn(w.router.process.logTail(math.MaxInt)))}
	for _, e := range s.engines {
		c.preempted += grown(before.engines[e.Name], after.engines[e.Name], "vllm:num_preemptions_total")
		if e.Role == producer || e.Role == consumer {
			gone := grown(before.router, after.router, "tandem_events_blocks_total", label("replica", e.Name),
				label("result", "removed"))
			c.removed = append(c.removed, removed{e.Name, e.Role, gone})
		}
	}
	const queue = "tandem_phase_seconds"
	all := grown(before.router, after.router, queue+"_count", label("phase", "queue"))
	atOnce := grown(before.router, after.router, queue+"_bucket", label("phase", "queue"), label("le",
		"0.001"))
	c.waited = all - atOnce
	c.fullest, c.promised, c.crowd = w.tightest()
	return c
}

// print writes its part of the table.
func (c *scarcity) print(w io.Writer) {
	var gone []string
	for _, r := range c.removed {
		gone = append(gone, fmt.Sprintf("%s %d", r.engine, r.blocks))
	}
	fmt.Fprintf(w, "  evicted      blocks of %s\n", strings.Join(gone, ", "))
	fmt.Fprintf(w,
		"  room         %d requests waited for it, %d at once; the fewest free blocks of a decode "+
			"engine: %d by its own word, %d to be promised; preempted: %d\n",
		c.waited, c.crowd, c.fullest, c.promised, c.preempted)
	fmt.Fprintf(w, "  ledger       above the engine's free blocks by %d at most, and by %d more than what "+
		"came to it since the last poll, in %d looks\n",
		c.excess.most, c.excess.beyond, c.excess.looks)
}

// verdict returns the failed checks. With scarce, the phase must bring about every kind of scarcity.
func (c *scarcity) verdict(scarce bool) error {
	var errs []error
	if c.excess.beyond > 0 {
		errs = append(errs, fmt.Errorf("the ledger promised %d blocks that the engine did not have: %s",
			c.excess.beyond, c.excess.where))
	}
	if c.excess.looks == 0 {
		errs = append(errs, errors.New("no ledger was compared with its engine"))
	}
	if !scarce {
		return errors.Join(errs...)
	}
	for _, r := range c.removed {
		if r.blocks == 0 {
			errs = append(errs, fmt.Errorf("%s evicted nothing, though it should be too small", r.engine))
		}
	}
	if c.waited == 0 || c.crowd == 0 {
		errs = append(errs, fmt.Errorf(
			"%d requests waited for room, and %d at once, though there should be too little", c.waited,
			c.crowd,
		))
	}
	if c.fullest > scarceBlocks {
		errs = append(errs,
			fmt.Errorf("the fullest decode engine had %d blocks free, though it should be almost full",
				c.fullest))
	}
	return errors.Join(errs...)
}

// scarceBlocks is less than the next prompt of a scarce phase needs.
const scarceBlocks = 600 / blockTokens

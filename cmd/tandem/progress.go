package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// reporter prints the progress of a long command. Several goroutines may use it.
type reporter struct {
	w     io.Writer
	began time.Time

	mu   sync.Mutex // guards the following and w
	last time.Time  // of the last line of at
}

func newReporter(w io.Writer) *reporter {
	now := time.Now()
	return &reporter{w: w, began: now, last: now}
}

// say prints a line after the elapsed time. share is the part of the work that is done, from 0 to 1; the line
// then estimates the rest of the time. 0 is unknown.
func (r *reporter) say(text string, share float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.print(text, share)
}

// at is say for frequent calls: it prints a line every five seconds.
func (r *reporter) at(text string, share float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) >= 5*time.Second {
		r.print(text, share)
	}
}

func (r *reporter) print(text string, share float64) {
	r.last = time.Now()
	gone := r.last.Sub(r.began)
	fmt.Fprintf(r.w, "%6.1f s  %s%s\n", gone.Seconds(), text, left(gone, share))
}

// left estimates the time left if share of the work took gone. If gone is too short, it returns nothing.
func left(gone time.Duration, share float64) string {
	if share <= 0 || share >= 1 || gone < time.Second {
		return ""
	}
	rest := time.Duration(float64(gone) * (1 - share) / share)
	switch {
	case rest < 10*time.Second:
		rest = rest.Round(time.Second)
	case rest < 10*time.Minute:
		rest = rest.Round(10 * time.Second)
	default:
		rest = rest.Round(time.Minute)
	}
	return fmt.Sprintf("; %.0f %%, about %v left", 100*share, rest)
}

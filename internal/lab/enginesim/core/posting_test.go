package core

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Posting the descriptors of a read is part of a step. A fresh cache has one descriptor a layer, a used one
// has one for each block, and the engine counts what it has posted.
func TestPostingTakesTimeOfTheStep(t *testing.T) {
	const post = 5 * time.Microsecond
	b, p, d, _ := pair(t, Config{Blocks: 400, Layers: 32, Cost: Cost{Post: post.Seconds()}})
	posted := func(id string, blocks int) (descriptors float64, took time.Duration) {
		before, began := d.Stats().NixlPosting, d.Histograms()[readDescriptors].Sum
		text := prompt(uint64(id[0]), blocks*16)
		params := b.prefill(p, id+" p", text)
		b.settle()
		at := b.now
		b.add(d, &Request{ID: id, Prompt: text, MaxTokens: 1, Transfer: params})
		b.settle()
		took = d.Stats().NixlPosting - before
		if b.now-at != took {
			t.Errorf("%s: its steps took %v, and posting %v", id, b.now-at, took)
		}
		return d.Histograms()[readDescriptors].Sum - began, took
	}
	n, took := posted("fresh", 72)
	if n != 32 || took != time.Duration(n)*post {
		t.Errorf("in a fresh cache %g descriptors in %v, want one a layer", n, took)
	}
	for i := range 60 { // of different lengths, so that free blocks lie scattered
		b.add(d, &Request{ID: fmt.Sprint("own ", i), Prompt: prompt(uint64(9000+i), 17+i%7*32), MaxTokens: 3 + i%5})
		if i%3 == 2 {
			b.settle()
		}
	}
	b.settle()
	if n, took := posted("used!", 72); n < 2*32 || took != time.Duration(n)*post {
		t.Errorf("in a used cache %g descriptors in %v, want far more than one a layer", n, took)
	}
	if h := d.Histograms()[postTime]; h.Sum <= 0 || math.Abs(h.Sum-d.Stats().NixlPosting.Seconds()) > 1e-9 {
		t.Errorf("/metrics has %g s of posting, the engine %v", h.Sum, d.Stats().NixlPosting)
	}
}

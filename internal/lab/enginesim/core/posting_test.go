package core

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Posting the descriptors of a read lengthens the step. A fresh cache needs one descriptor per layer, a used
// one needs many more. The engine counts its descriptors.
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
			t.Errorf("%s: the steps took %v, but posting took %v", id, b.now-at, took)
		}
		return d.Histograms()[readDescriptors].Sum - began, took
	}
	n, took := posted("fresh", 72)
	if n != 32 || took != time.Duration(n)*post {
		t.Errorf("with a fresh cache %g descriptors in %v, want one per layer", n, took)
	}
	for i := range 60 { // different lengths scatter the free blocks
		b.add(d, &Request{ID: fmt.Sprint("own ", i), Prompt: prompt(uint64(9000+i), 17+i%7*32), MaxTokens: 3 + i%5})
		if i%3 == 2 {
			b.settle()
		}
	}
	b.settle()
	if n, took := posted("used!", 72); n < 2*32 || took != time.Duration(n)*post {
		t.Errorf("with a used cache %g descriptors in %v, want at least two per layer", n, took)
	}
	if h := d.Histograms()[postTime]; h.Sum <= 0 || math.Abs(h.Sum-d.Stats().NixlPosting.Seconds()) > 1e-9 {
		t.Errorf("the histogram has %g s of posting, the engine %v", h.Sum, d.Stats().NixlPosting)
	}
}

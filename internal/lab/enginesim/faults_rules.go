package enginesim

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// faults holds the injected faults.
type faults struct {
	armed  atomic.Bool  // a rule may match; if false, the hot path skips the rules
	orca   atomic.Bool  // no_orca
	scrape atomic.Int64 // slow_metrics
	late   atomic.Int64 // delay_events

	mu        sync.Mutex // guards the following
	rules     []Fault    // fail, stall, stray, cut_stream, stall_stream, fail_stream, null_params, miscount
	duplicate int
	delayed   chan lateBatch
}

// question is the leg of requests about the server itself. Only rules with their path match.
const question = "question"

// take returns the first matching rule of a kind, and decrements its count.
func (f *faults) take(kind, path, leg string) (Fault, bool) { return f.takeFor(kind, path, leg, nil) }

// takeFor is take for a request with a body: a rule may require a text in the body.
func (f *faults) takeFor(kind, path, leg string, body []byte) (Fault, bool) {
	if !f.armed.Load() {
		return Fault{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.rules {
		r := &f.rules[i]
		if r.Kind != kind || !bytes.Contains(body, []byte(r.Body)) || r.Leg != "" && r.Leg != leg ||
			r.Path != path && (r.Path != "" || leg == question) {
			continue
		}
		found := *r
		if r.Count--; r.Count == 0 {
			f.rules = slices.Delete(f.rules, i, i+1)
		}
		return found, true
	}
	return Fault{}, false
}

func (f *faults) add(rule Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rule.Count = cmp.Or(rule.Count, 1)
	rule.After = cmp.Or(rule.After, 1)
	rule.Status = cmp.Or(rule.Status, 500)
	f.rules = append(f.rules, rule)
	f.armed.Store(true)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	f.duplicate = 0
	f.armed.Store(false)
	f.orca.Store(false)
	f.scrape.Store(0)
	f.late.Store(0)
}

package policies

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Requests wait while every prefill replica has too much to compute, and the class with the tightest goal is
// first. Without a prefill pool nothing waits.
func TestDynamoPriority(t *testing.T) {
	r, err := New("dynamo-priority:threshold=0.5:local=0", fleet(), 1)
	if err != nil {
		t.Fatal(err)
	}
	f := r.(*prioritized)
	now := cluster.Time(0)
	var at []int
	for i := range 10 {
		p, _, room := f.Place(&cluster.Query{Slot: i, Tokens: 5000, At: now}, now)
		if !room {
			break
		}
		at = append(at, p)
	}
	if len(at) != len(f.sides[cluster.Prefill]) {
		t.Errorf("%v were placed, want one on each of %d replicas", at, len(f.sides[cluster.Prefill]))
	}
	f.Answered(&cluster.Query{Slot: 0, Tokens: 5000}, 0, time.Second, now)
	if _, _, room := f.Place(&cluster.Query{Slot: 10, Tokens: 5000, At: now}, now); !room {
		t.Error("no room behind an answer")
	}
	fast := &cluster.Query{Class: &cluster.Class{TTFT: time.Second}}
	slow := &cluster.Query{Class: &cluster.Class{TTFT: time.Minute}}
	if f.Order(fast, 0).Rank >= f.Order(slow, 0).Rank {
		t.Error("the far goal is first")
	}
}

// Rules for local prefills behind the name leave the queue in place.
func TestDynamoPriorityWithLocal(t *testing.T) {
	r, err := New("dynamo-priority:threshold=0.5+local:k=2", fleet(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := r.(*prioritized); !ok || f.threshold != 0.5 {
		t.Errorf("%T has no queue", r)
	}
}

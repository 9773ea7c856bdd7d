package kvevents

import (
	"sync"
	"testing"
	"time"
)

// Options.Topic is called with the topic of each replayed and each live batch.
func TestTopicsAreTold(t *testing.T) {
	e := newEngine(t, PublisherOptions{Topic: "kv@a"})
	e.publish(1)
	src := e.source()
	src.Topic = ""
	var mu sync.Mutex // guards topics
	var topics []string
	o := audited()
	o.Topic = func(topic []byte) {
		mu.Lock()
		defer mu.Unlock()
		topics = append(topics, string(topic))
	}
	_, r, stop := follow(t, src, o)
	r.until(t, "the replay", func() bool { return len(r.seqs) == 1 })
	mu.Lock()
	if len(topics) == 0 || topics[0] != "kv@a" {
		t.Errorf("got topics %q from the replay, want kv@a first", topics)
	}
	mu.Unlock()
	e.publish(1)
	r.until(t, "the next batch", func() bool { return len(r.seqs) == 2 })
	stop()
	for _, topic := range topics {
		if topic != "kv@a" {
			t.Errorf("got topics %q, want only kv@a", topics)
		}
	}
}

// If no replay is answered, the blocks from before are missing. The statistics show this.
func TestPartialHistoryIsTold(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(3)
	src := e.source()
	src.Replay = src.Endpoint // a socket that answers no request
	f, r, stop := follow(t, src, Options{Audit: -1, ReplayTimeout: 100 * time.Millisecond})
	r.until(t, "in step without history", func() bool { return r.state == Live })
	stop()
	if s := f.Stats(); !s.Partial || s.Timeouts == 0 || s.Batches != 0 {
		t.Errorf("got stats %+v, want partial, with a timeout and no batch", s)
	}
}

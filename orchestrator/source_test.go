package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// published is an engine's event stream at one address, written by the test, with a history that can be
// replayed.
func published(t *testing.T, topic string) (*kvevents.Publisher, config.Events) {
	t.Helper()
	pub, err := kvevents.NewPublisher(
		kvevents.PublisherOptions{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Topic: topic},
	)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, replay := pub.Endpoints()
	return pub, config.Events{Endpoint: endpoint, Replay: replay, Topic: topic}
}

func twoBlocks(kind kv.EventKind, hashes ...kv.EngineHash) *kvevents.EncodeBatch {
	e := kv.Event{Kind: kind, Hashes: hashes}
	if kind == kv.Stored {
		e.Tokens = make([]kv.Token, 2*16)
		e.BlockSize = 16
		e.SpecKind = "full_attention"
	}
	return &kvevents.EncodeBatch{At: time.Now(), Events: []kv.Event{e}}
}

// A reload changes the topic of a stream and the name of its replica while the engine runs. Each block
// counts once: after its removal it is gone.
func TestStreamChangesItsSourceAndName(t *testing.T) {
	pub, events := published(t, "kv@engine")
	defer pub.Close()
	s := streams(setup{prefill: 1, decode: 1})
	inner := s.config
	s.config = func(c *config.Config) {
		inner(c)
		c.Pools.Prefill.Replicas[0].Events = events
	}
	w := newWorld(t, s)
	defer w.close()
	change := func(do func(r *config.Replica)) {
		cfg := *w.cfg
		cfg.Pools.Prefill.Replicas = []config.Replica{w.cfg.Pools.Prefill.Replicas[0]}
		do(&cfg.Pools.Prefill.Replicas[0])
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
	}
	blocks := func() int { return w.o.prefill.Status(time.Now())[0].Blocks }
	live := func() bool { return w.live() == 2 }

	until(t, "both streams live", live)
	pub.Publish(twoBlocks(kv.Stored, 1, 2))
	until(t, "the blocks", func() bool { return blocks() == 2 })

	stream := w.o.fleet.Watchers()[0].Streams()[0]
	change(func(r *config.Replica) { r.Name = "renamed" })
	if n := blocks(); n != 2 {
		t.Errorf("%d blocks after the rename, want 2", n)
	}
	pub.Publish(twoBlocks(kv.Removed, 2))
	until(t, "the removal under the new name", func() bool { return blocks() == 1 })
	if now := w.o.fleet.Watchers()[0].Streams(); len(now) != 1 || now[0] != stream || now[0].ID() != "renamed" {
		t.Error("the rename replaced the stream")
	}

	change(func(r *config.Replica) { r.Events.Topic = "kv@" })
	until(t, "the stream by another topic", func() bool {
		now := w.o.fleet.Watchers()[0].Streams()
		return len(now) == 1 && now[0] != stream && now[0].Live() && blocks() == 1
	})
	pub.Publish(twoBlocks(kv.Removed, 1))
	until(t, "the last block is gone", func() bool { return blocks() == 0 })
}

package kvevents_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// printer is a Sink that prints its calls, and ends the example when the stream is live.
type printer struct{ live context.CancelFunc }

func (p printer) Apply(b *kv.Batch) {
	for _, e := range b.Events {
		fmt.Printf("batch %d: %d blocks of %d tokens %s\n", b.Seq, len(e.Hashes), e.BlockSize, e.Kind)
	}
}

func (p printer) Forget(reason string) { fmt.Println("forget:", reason) }

func (p printer) State(s kvevents.State, reason string) {
	fmt.Printf("%s: %s\n", s, reason)
	if s == kvevents.Live {
		p.live()
	}
}

// A follower that connects late gets the batches that the engine still has, by a replay.
func Example() {
	engine, err := kvevents.NewPublisher(
		kvevents.PublisherOptions{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	engine.Publish(&kvevents.EncodeBatch{At: time.Now(), Events: []kv.Event{
		{Kind: kv.Stored, Hashes: []kv.EngineHash{17, 42}, Tokens: make([]kv.Token, 32), BlockSize: 16},
	}})

	ctx, live := context.WithTimeout(context.Background(), 10*time.Second)
	defer live()
	endpoint, replay := engine.Endpoints()
	follower := kvevents.NewFollower(kvevents.Source{Endpoint: endpoint, Replay: replay}, printer{live},
		kvevents.Options{})
	if err := follower.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// syncing: connecting
	// batch 0: 2 blocks of 16 tokens stored
	// live: in step with the engine
}

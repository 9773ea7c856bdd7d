package fleet

import (
	"context"
	"errors"
	"slices"

	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/replica"
)

// follow makes the streams match what the ranks publish now. If a rank publishes at another place than
// before, its blocks are forgotten first. The new stream begins with all present blocks, and the blocks of
// the old stream would count twice.
func (w *Watcher) follow(ctx context.Context) {
	wanted := map[kvevents.Source]replica.ID{}
	for _, m := range w.Members() {
		if m.Facts.Events.Endpoint != "" {
			wanted[w.source(&m)] = m.ID
		}
	}
	for _, f := range w.facts.unfollow(wanted) {
		w.pool.Forget(f.ID())
	}
	w.fleet.keep.mu.Lock() // names do not change meanwhile
	defer w.fleet.keep.mu.Unlock()
	for _, m := range w.Members() {
		src := w.source(&m)
		if src.Endpoint == "" {
			// TrustUnknown and the member's facts tell the pool that there is nothing to hear.
			w.pool.SetTrust(m.ID, replica.TrustUnknown)
			continue
		}
		if _, ok := wanted[src]; !ok ||
			slices.ContainsFunc(w.Streams(), func(f *Stream) bool { return f.source == src }) {
			continue // what became wanted meanwhile is followed at the next look
		}
		w.startFollower(ctx, m.ID, src)
	}
}

// source is where a replica's events come from.
func (w *Watcher) source(m *replica.Replica) kvevents.Source {
	e, only := m.Facts.Events, len(w.Members()) == 1
	return kvevents.Source{Endpoint: e.Endpoint, Replay: e.Replay, Topic: e.Topic, Rank: m.Rank, Only: only}
}

func (w *Watcher) startFollower(ctx context.Context, id replica.ID, src kvevents.Source) {
	ctx, cancel := context.WithCancel(ctx)
	f := &Stream{id: id, source: src, stop: cancel, done: make(chan struct{})}
	f.follower = kvevents.NewFollower(src, newSink(w, f), kvevents.Options{Context: &w.fleet.zmq})
	w.facts.mu.Lock()
	w.facts.streams = append(w.facts.streams, f)
	w.facts.mu.Unlock()
	go func() { // ended by unfollow, which run defers
		defer close(f.done)
		err := errors.New("a bug of this router")
		if w.fleet.opt.Panics.Contain("events", func() { err = f.follower.Run(ctx) }) {
			w.due.todo.reindex.Store(true) // begin stream and index anew: its work may be half done
		}
		if err != nil && ctx.Err() == nil {
			w.pool.SetTrust(f.ID(), replica.Stale)
			f.setState(kvevents.Stale, err.Error())
			w.log.Error("block events cannot be followed", "replica", string(f.ID()), "endpoint", src.Endpoint,
				"error", err)
		}
	}()
}

// unfollow stops the followers of all sources that are not in keep. It waits for them and returns their
// streams.
func (w *facts) unfollow(keep map[kvevents.Source]replica.ID) []*Stream {
	w.mu.Lock()
	var kept, ended []*Stream
	for _, f := range w.streams {
		if _, ok := keep[f.source]; ok {
			kept = append(kept, f)
		} else {
			ended = append(ended, f)
		}
	}
	w.streams = kept
	w.mu.Unlock()
	for _, f := range ended {
		f.stop()
	}
	for _, f := range ended {
		<-f.done
	}
	return ended
}

// Streams returns the streams of events that are followed.
func (w *Watcher) Streams() []*Stream {
	w.facts.mu.Lock()
	defer w.facts.mu.Unlock()
	return slices.Clone(w.facts.streams)
}

// reindex applies a changed index mode: it begins or stops following the engine's events. The streams begin
// anew, since the blocks that they brought are not known any more.
func (w *Watcher) reindex(ctx context.Context) {
	w.facts.unfollow(nil)
	for _, m := range w.Members() {
		w.pool.Forget(m.ID)
	}
	w.follow(ctx)
}

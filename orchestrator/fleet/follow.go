package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/replica"
)

// following is the streams of events of one server, which are followed. One goroutine calls update, follow
// and unfollow; all other methods are safe for concurrent use.
type following struct {
	server *server
	facts  *facts
	fleet  *Fleet

	anew atomic.Bool // the pool's index has another source now: following begins anew
	due  atomic.Bool // the followed streams may have to change
	// restartLogged says that the log has a line of the restart that the next scrape will find, or has found.
	restartLogged atomic.Bool

	mu      sync.Mutex // guards the following
	streams []*Stream
}

// update follows what the ranks publish, if that may have changed.
func (fs *following) update(ctx context.Context) {
	switch {
	case fs.anew.Swap(false):
		fs.restart(ctx)
	case fs.due.Swap(false):
		fs.follow(ctx)
	}
}

// follow makes the streams match what the ranks publish now. If a rank publishes at another place than
// before, its blocks are forgotten first. The new stream begins with all present blocks, and the blocks of
// the old stream would count twice.
func (fs *following) follow(ctx context.Context) {
	wanted := map[kvevents.Source]replica.ID{}
	for _, m := range fs.facts.members() {
		if m.Facts.Events.Endpoint != "" {
			wanted[fs.source(&m)] = m.ID
		}
	}
	for _, f := range fs.unfollow(wanted) {
		fs.server.pool.Forget(f.ID())
	}
	fs.fleet.keep.mu.Lock() // names do not change meanwhile
	defer fs.fleet.keep.mu.Unlock()
	for _, m := range fs.facts.members() {
		src := fs.source(&m)
		if src.Endpoint == "" {
			// TrustUnknown and the member's facts tell the pool that there is nothing to hear.
			fs.server.pool.SetTrust(m.ID, replica.TrustUnknown)
			continue
		}
		if _, ok := wanted[src]; !ok ||
			slices.ContainsFunc(fs.all(), func(f *Stream) bool { return f.source == src }) {
			continue // what became wanted meanwhile is followed at the next look
		}
		fs.start(ctx, m.ID, src)
	}
}

// source is where a replica's events come from.
func (fs *following) source(m *replica.Replica) kvevents.Source {
	e, only := m.Facts.Events, len(fs.facts.members()) == 1
	return kvevents.Source{Endpoint: e.Endpoint, Replay: e.Replay, Topic: e.Topic, Rank: m.Rank, Only: only}
}

func (fs *following) start(ctx context.Context, id replica.ID, src kvevents.Source) {
	ctx, cancel := context.WithCancel(ctx)
	f := &Stream{id: id, source: src, stop: cancel, done: make(chan struct{})}
	f.follower = kvevents.NewFollower(src, newSink(fs, f), kvevents.Options{Context: &fs.fleet.zmq})
	fs.mu.Lock()
	fs.streams = append(fs.streams, f)
	fs.mu.Unlock()
	go func() { // ended by unfollow, which run defers
		defer close(f.done)
		err := errors.New("a bug of this router")
		if fs.fleet.opt.Panics.Contain("events", func() { err = f.follower.Run(ctx) }) {
			fs.anew.Store(true) // begin stream and index anew: its work may be half done
		}
		if err != nil && ctx.Err() == nil {
			fs.server.pool.SetTrust(f.ID(), replica.Stale)
			f.setState(kvevents.Stale, err.Error())
			fs.server.log.Error("block events cannot be followed", "replica", string(f.ID()), "endpoint", src.Endpoint,
				"error", err)
		}
	}()
}

// unfollow stops the followers of all sources that are not in keep. It waits for them and returns their
// streams.
func (fs *following) unfollow(keep map[kvevents.Source]replica.ID) []*Stream {
	fs.mu.Lock()
	var kept, ended []*Stream
	for _, f := range fs.streams {
		if _, ok := keep[f.source]; ok {
			kept = append(kept, f)
		} else {
			ended = append(ended, f)
		}
	}
	fs.streams = kept
	fs.mu.Unlock()
	for _, f := range ended {
		f.stop()
	}
	for _, f := range ended {
		<-f.done
	}
	return ended
}

// all returns the streams of events that are followed.
func (fs *following) all() []*Stream {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.streams)
}

// restart applies a changed index mode: it begins or stops following the engine's events. The streams begin
// anew, since the blocks that they brought are not known any more.
func (fs *following) restart(ctx context.Context) {
	fs.unfollow(nil)
	for _, m := range fs.facts.members() {
		fs.server.pool.Forget(m.ID)
	}
	fs.follow(ctx)
}

// holdRenamed appends the streams of renamed replicas, each held until its renaming ends.
func (fs *following) holdRenamed(held []renaming) []renaming {
	for _, f := range fs.all() {
		for _, m := range fs.facts.members() {
			if m.Rank == f.source.Rank && m.ID != f.ID() {
				f.naming.Lock()
				held = append(held, renaming{f, m.ID})
				break
			}
		}
	}
	return held
}

// judge tells the stream of a replica that prompts of this replica stored blocks without an event.
func (fs *following) judge(id replica.ID, now time.Time) {
	prompts, since := fs.server.pool.Unannounced(id, now)
	if prompts == 0 {
		return
	}
	reason := fmt.Sprintf("computed %d prompts and announced no block for %.0f s", prompts, since.Seconds())
	for _, f := range fs.all() {
		if f.ID() == id {
			f.follower.Missed(reason)
		}
	}
}

// forget tells the streams that the process of their engine is another one.
func (fs *following) forget() {
	for _, f := range fs.all() {
		f.announced.Store(true)
		// Otherwise the blocks that it applies meanwhile would be forgotten, and never announced again.
		f.follower.Restarted("its process is another one")
	}
}

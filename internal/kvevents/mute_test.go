package kvevents

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The stream becomes stale if its publisher announces no blocks and answers no replay. It does not become
// stale before the timeout of the replay. It is live again as soon as the publisher sends something.
func TestAMutePublisherIsStale(t *testing.T) {
	const silent = 5 * time.Second
	answer := func(w *world) {
		for w.deliver() || w.serve() || w.reply() {
		}
	}
	ignore := func(w *world) { // loses the replay request
		w.serve()
		w.replies = nil
	}
	for _, c := range []struct {
		name string
		tell func(w *world)
		want []string // the states after the first Live
	}{
		{"the replay is answered", answer, nil},
		{"the replay brings a missed batch", func(w *world) {
			w.publish(false, false)
			answer(w)
		}, nil},
		{"no replay comes", ignore, []string{"stale (missed" + Mute + ")"}},
		{"an event comes before the timeout", func(w *world) {
			ignore(w)
			w.publish(true, false)
			w.deliver()
		}, nil},
		{"the connection is lost meanwhile", (*world).disconnect, []string{"stale (connection lost)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(true, 10)
			w.publish(true, false)
			w.connect()
			w.publish(true, false)
			answer(w)
			if w.told != Live {
				t.Fatalf("the stream is not live before the test\n%s", w.tail())
			}
			from := len(w.log)
			for range 2 { // the suspicion is repeated every second
				w.track.suspect("missed")
			}
			c.tell(w)
			states := func() (all []string) {
				for _, line := range w.log[from:] {
					if strings.HasPrefix(line, "stale") || strings.HasPrefix(line, "live") {
						all = append(all, line)
					}
				}
				return all
			}
			if got := states(); w.told == Stale && w.up {
				t.Errorf("got %q before the timeout of the replay, want no stale state", got)
			}
			w.now = w.now.Add(silent)
			w.track.tick(w.now)
			if got := states(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Without a replay endpoint the publisher cannot be asked. The stream is stale until its next event.
func TestAMutePublisherWithoutReplayIsStaleAtOnce(t *testing.T) {
	w := newWorld(false, 10)
	w.publish(true, false)
	w.connect()
	w.publish(true, false)
	for w.deliver() {
	}
	w.track.suspect("missed")
	if w.told != Stale {
		t.Fatalf("got %s, want stale\n%s", w.told, w.tail())
	}
	w.publish(true, false)
	w.deliver()
	if w.told != Live {
		t.Errorf("got %s, want live\n%s", w.told, w.tail())
	}
}

// The stream is live again after the first event, or after the first audit that finds nothing new.
func TestAMutePublisherComesBack(t *testing.T) {
	for name, back := range map[string]func(w *world){
		"an event": func(w *world) { w.publish(true, false) },
		"an audit": func(w *world) {
			for w.told == Stale && w.pass() {
				w.serve()
				for w.reply() {
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(true, 10)
			w.publish(true, false)
			w.connect()
			for w.deliver() || w.serve() || w.reply() {
			}
			w.track.suspect("missed")
			w.serve()
			w.replies = nil
			for w.told == Live && w.pass() {
			}
			if w.told != Stale || len(w.applied) != 1 {
				t.Fatalf("got %s and %d kept batches, want stale and 1\n%s", w.told, len(w.applied), w.tail())
			}
			back(w)
			for w.deliver() {
			}
			if w.told != Live {
				t.Errorf("got %s, want live\n%s", w.told, w.tail())
			}
		})
	}
}

// The same happens over real sockets: the publisher hangs while its connection stays open.
func TestFollowMutePublisher(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	e.publish(2)
	f, r, _ := follow(t, e.source(), Options{Audit: -1, ReplayTimeout: 200 * time.Millisecond})
	r.through(t, 0, 1)
	f.Missed("computed 3 prompts")
	waitStats(t, f, "a replay that is answered", func(s Stats) bool { return s.Replays >= 2 })
	r.through(t, 0, 1)
	e.Pause()
	e.publish(1)
	r.until(t, "stale", func() bool {
		f.Missed("computed 5 prompts") // each scrape reports this
		return r.state == Stale && r.why[len(r.why)-1] == "computed 5 prompts"+Mute
	})
	e.Resume()
	r.through(t, 0, 2)
}

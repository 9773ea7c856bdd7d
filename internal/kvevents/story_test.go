package kvevents

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTrackerStories plays single cases step by step. Most of them are cases that the random network of
// TestTrackerModel never produces.
func TestTrackerStories(t *testing.T) {
	say := func(w *world, n int) {
		for range n {
			w.publish(true, false)
		}
	}
	arrive := func(w *world) {
		for w.deliver() || w.serve() || w.reply() {
		}
	}
	joined := func(w *world, n int) { // the tracker is live and has n batches
		say(w, n)
		w.connect()
		arrive(w)
	}
	hidden := func(w *world) { // the engine restarts behind a proxy, which keeps the connection
		w.life++
		w.next, w.buffer = 0, nil
	}
	for _, tt := range []struct {
		name   string
		replay bool
		steps  int
		tell   func(*world)
		want   []string // the end of the log, without the reasons in parentheses
		stats  Stats
	}{
		{
			name: "nothing said yet", replay: true, steps: 10,
			tell: func(w *world) { joined(w, 0) },
			want: []string{"syncing", "connected", "ask 0", "live"},
		},
		{
			name: "a late join, and a live batch that the replay brought before", replay: true, steps: 10,
			tell: func(w *world) {
				say(w, 2)
				w.connect()
				say(w, 1)
				w.serve()
				for w.reply() {
				}
				w.deliver()
				say(w, 1)
				arrive(w)
			},
			want: []string{
				"ask 0", "apply life 0 batch 0", "apply life 0 batch 1", "apply life 0 batch 2", "live",
				"apply life 0 batch 3",
			},
			stats: Stats{Duplicates: 1, Replays: 1, State: Live},
		},
		{
			name: "a gap filled", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 1)
				w.publish(false, false)
				say(w, 2)
				arrive(w)
			},
			want: []string{
				"live", "syncing", "ask 0", "apply life 0 batch 1", "apply life 0 batch 2", "apply life 0 batch 3",
				"live",
			},
			stats: Stats{Gaps: 1, Replays: 2, State: Live},
		},
		{
			name: "a gap that reaches the first batch still kept, on a connection that stood", replay: true, steps: 3,
			tell: func(w *world) {
				joined(w, 1)
				w.publish(false, false)
				w.publish(false, false)
				say(w, 1)
				arrive(w)
			},
			want: []string{
				"live", "syncing", "ask 0", "apply life 0 batch 1", "apply life 0 batch 2", "apply life 0 batch 3",
				"live",
			},
			stats: Stats{Gaps: 1, Replays: 2, State: Live},
		},
		{
			name: "a gap that cannot be filled", replay: true, steps: 2,
			tell: func(w *world) {
				joined(w, 1)
				w.publish(false, false)
				w.publish(false, false)
				say(w, 1)
				arrive(w)
			},
			want: []string{
				"live", "syncing", "ask 0", "forget", "stale", "apply life 0 batch 2", "apply life 0 batch 3", "live",
			},
			stats: Stats{Gaps: 1, Lost: 1, Replays: 2, State: Live},
		},
		{
			name: "a gap without a replay endpoint", steps: 2,
			tell: func(w *world) {
				w.connect()
				say(w, 1)
				arrive(w)
				w.publish(false, false)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"live", "apply life 0 batch 0", "forget", "stale", "apply life 0 batch 2", "live"},
			stats: Stats{Gaps: 1, Lost: 1, State: Live},
		},
		{
			name: "a restart that nobody saw, the sequence falls back", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 0)
				say(w, 3)
				arrive(w)
				hidden(w)
				w.publish(false, false)
				say(w, 1)
				arrive(w)
			},
			want: []string{
				"apply life 0 batch 2", "forget", "syncing", "ask 0", "apply life 1 batch 0", "apply life 1 batch 1",
				"live",
			},
			stats: Stats{Restarts: 1, Replays: 2, State: Live},
		},
		{
			name: "a restart that nobody saw, right behind a replay", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 3)
				hidden(w)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"live", "forget", "syncing", "ask 0", "apply life 1 batch 0", "live"},
			stats: Stats{Restarts: 1, Duplicates: 1, Replays: 2, State: Live},
		},
		{
			name: "a restart that nobody saw, in the middle of a replay", replay: true, steps: 10,
			tell: func(w *world) {
				say(w, 3)
				w.connect()
				say(w, 1)
				w.deliver()
				hidden(w)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"ask 0", "forget", "ask 0", "apply life 1 batch 0", "live"},
			stats: Stats{Restarts: 1, Duplicates: 1, Replays: 2, State: Live},
		},
		{
			name: "a restart that nobody saw, behind the replay, before the first live batch", replay: true, steps: 10,
			tell: func(w *world) {
				say(w, 2)
				w.connect()
				w.serve()
				hidden(w)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"ask 0", "apply life 0 batch 0", "forget", "ask 0", "apply life 1 batch 0", "live"},
			stats: Stats{Restarts: 1, Replays: 2, State: Live},
		},
		{
			name: "a replay whose end a ROUTER dropped, live batches reach back to what came", replay: true, steps: 10,
			tell: func(w *world) {
				say(w, 2)
				w.connect()
				say(w, 2)
				w.deliver()
				w.serve()
				w.replies = w.replies[:2]
				arrive(w)
			},
			want: []string{
				"ask 0", "apply life 0 batch 0", "apply life 0 batch 1", "apply life 0 batch 2", "apply life 0 batch 3",
				"live",
			},
			stats: Stats{Replays: 1, State: Live},
		},
		{
			name: "a restart seen by somebody else", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 2)
				hidden(w)
				say(w, 3)
				w.live = nil
				w.track.replaced("start time changed")
				arrive(w)
			},
			want: []string{
				"live", "forget", "syncing", "ask 0", "apply life 1 batch 0", "apply life 1 batch 1",
				"apply life 1 batch 2", "live",
			},
			stats: Stats{Restarts: 1, Replays: 2, State: Live},
		},
		{
			name: "a restart seen by somebody else while there is no connection", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 2)
				w.restart()
				say(w, 3)
				w.track.replaced("start time changed")
				w.connect()
				arrive(w)
			},
			want: []string{
				"live", "disconnected", "stale", "engine restarts", "forget", "connected", "syncing", "ask 0",
				"apply life 1 batch 0", "apply life 1 batch 1", "apply life 1 batch 2", "live",
			},
			stats: Stats{Restarts: 1, Replays: 2, State: Live},
		},
		{
			name: "a restart seen by somebody else, without a replay endpoint, though the numbers fit", steps: 10,
			tell: func(w *world) {
				w.connect()
				say(w, 2)
				arrive(w)
				w.disconnect()
				w.life++
				w.track.replaced("start time changed")
				w.connect()
				say(w, 1)
				arrive(w)
			},
			want: []string{
				"apply life 0 batch 1", "disconnected", "stale", "forget", "connected", "live", "apply life 1 batch 2",
			},
			stats: Stats{Restarts: 1, State: Live},
		},
		{
			name: "a restart that nobody saw, found by an audit though the numbers fit", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 2)
				hidden(w)
				w.publish(false, false)
				w.publish(false, false)
				w.pass()
				arrive(w)
			},
			want: []string{
				"live", "ask 1", "forget", "syncing", "ask 0", "apply life 1 batch 0", "apply life 1 batch 1", "live",
			},
			stats: Stats{Restarts: 1, Replays: 3, State: Live},
		},
		{
			name: "a restart without a replay endpoint", steps: 10,
			tell: func(w *world) {
				w.connect()
				say(w, 2)
				arrive(w)
				hidden(w)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"apply life 0 batch 1", "forget", "apply life 1 batch 0"},
			stats: Stats{Restarts: 1, State: Live},
		},
		{
			name: "a connection lost and found, without a replay endpoint", steps: 10,
			tell: func(w *world) {
				w.connect()
				say(w, 1)
				arrive(w)
				w.disconnect()
				w.connect()
				say(w, 1)
				arrive(w)
			},
			want: []string{
				"apply life 0 batch 0", "disconnected", "stale", "connected", "apply life 0 batch 1", "live",
			},
			stats: Stats{State: Live},
		},
		{
			name: "an engine that keeps nothing for replay", replay: true, steps: 0,
			tell: func(w *world) {
				say(w, 2)
				w.connect()
				say(w, 1)
				arrive(w)
				w.pass() // an audit that finds nothing must not forget the live batches
				arrive(w)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"ask 0", "apply life 0 batch 2", "live", "ask 0", "apply life 0 batch 3"},
			stats: Stats{Replays: 2, State: Live},
		},
		{
			name: "a replay that never answers, until it does", replay: true, steps: 10,
			tell: func(w *world) {
				say(w, 2)
				w.connect()
				say(w, 1)
				for range maxTries {
					w.deliver()
					w.serve()
					w.replies = nil
					w.pass()
				}
				w.pass()
				arrive(w)
			},
			want: []string{
				"ask 0", "ask 0", "ask 0", "apply life 0 batch 2", "live", "ask 0", "forget", "syncing",
				"apply life 0 batch 0", "apply life 0 batch 1", "apply life 0 batch 2", "live",
			},
			stats: Stats{Timeouts: 3, Replays: 4, State: Live},
		},
		{
			name: "nobody there", replay: true, steps: 10,
			tell:  func(w *world) { w.pass() },
			want:  []string{"syncing", "stale"},
			stats: Stats{State: Stale},
		},
		{
			name: "without replay, gone for a moment", steps: 10,
			tell: func(w *world) {
				joined(w, 0)
				say(w, 3)
				arrive(w)
				w.disconnect()
				w.now = w.now.Add(quickestStart - time.Second)
				w.connect()
				say(w, 1)
				arrive(w)
			},
			want:  []string{"stale", "connected", "apply life 0 batch 3", "live"},
			stats: Stats{State: Live},
		},
		{
			name: "without replay, another process has come as far by the time we are back", steps: 10,
			tell: func(w *world) {
				joined(w, 0)
				say(w, 3)
				arrive(w)
				w.disconnect()
				w.life++
				w.now = w.now.Add(quickestStart)
				w.connect()
				say(w, 1)
				arrive(w)
			},
			want:  []string{"stale", "connected", "forget", "live", "apply life 1 batch 3"},
			stats: Stats{State: Live},
		},
		{
			name: "audits of an engine that answers none become rare", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 1)
				w.pass() // an audit with an answer
				arrive(w)
				w.up = false
				for i := range 5 {
					before := w.now
					w.pass()
					waited, mean := w.now.Sub(before), w.track.settings.audit<<min(i, rarely)
					if waited < mean*3/4 || waited > mean*5/4 {
						t.Errorf("got audit %d after %v, want about %v", i, waited, mean)
					}
					w.serve()
					w.pass()
				}
			},
			want:  []string{"live", "ask 0", "ask 0", "ask 0", "ask 0", "ask 0", "ask 0"},
			stats: Stats{Replays: 7, Timeouts: 5, State: Live},
		},
		{
			name: "batches that cannot be read", replay: true, steps: 10,
			tell: func(w *world) {
				joined(w, 1)
				w.publish(true, true)
				w.publish(true, true)
				say(w, 1)
				arrive(w)
			},
			want:  []string{"live", "forget", "stale", "apply life 0 batch 3", "live"},
			stats: Stats{Replays: 1, State: Live},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tt.replay, tt.steps)
			tt.tell(w)
			var got []string
			for _, line := range w.log {
				line, _, _ = strings.Cut(line, " (")
				got = append(got, line)
			}
			if len(got) < len(tt.want) || !slices.Equal(got[len(got)-len(tt.want):], tt.want) {
				t.Errorf("got log\n\t%s\nwant at its end\n\t%s",
					strings.Join(w.log, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
			if tt.stats != (Stats{}) && w.stats != tt.stats {
				t.Errorf("got stats %+v, want %+v", w.stats, tt.stats)
			}
		})
	}
}

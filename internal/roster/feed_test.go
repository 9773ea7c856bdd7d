package roster

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// announcing is a roster of one member with live events that have announced something.
func announcing(replay string) *Roster[*plain] {
	r := newRoster("a")
	rs := engines("a")
	rs[0].Facts.Events = replica.EventSource{Endpoint: "tcp://a:1", Replay: replay}
	r.SetMembers(rs, start)
	r.SetTrust("a", replica.Live)
	r.Apply("a", stored(16, count(64)))
	return r
}

// other makes the tokens of a prompt that shares nothing with others.
func other(n, length int) []uint32 {
	ids := count(length)
	for i := range ids {
		ids[i] += uint32(n+1) * 100_000
	}
	return ids
}

func (r *Roster[M]) expect(tokens []uint32, cached int, now time.Time) {
	r.Expect(r.members.All[0].member(), Prompt{Keys: r.keys(tokens)}, cached, now)
}

// Prompts that must have stored blocks of which no event tells are noticed, and nothing else is.
func TestBlocksThatNobodyAnnounces(t *testing.T) {
	for _, c := range []struct {
		name   string
		replay string
		tell   func(r *Roster[*plain], n int, now time.Time)
		want   int
	}{
		{"computed", "", func(r *Roster[*plain], n int, now time.Time) { r.expect(other(n, 64), 0, now) }, 5},
		{"computed in part", "", func(r *Roster[*plain], n int, now time.Time) {
			r.expect(other(n, 64), 32, now)
		}, 5},
		{"cached, and not in the index", "", func(r *Roster[*plain], n int, now time.Time) {
			r.expect(other(n, 64), 48, now) // the last block is computed again in any case
		}, 0},
		{"too short", "", func(r *Roster[*plain], n int, now time.Time) { r.expect(other(n, 31), 0, now) }, 0},
		{"known by events", "", func(r *Roster[*plain], _ int, now time.Time) { r.expect(count(64), 0, now) }, 0},
		{"of unknown caching", "", func(r *Roster[*plain], n int, now time.Time) {
			r.expect(other(n, 64), -1, now)
		}, 0},
		{"of unknown caching, with a replay", "tcp://a:2", func(r *Roster[*plain], n int, now time.Time) {
			r.expect(other(n, 64), -1, now)
		}, 5},
		{"the stream is not live", "", func(r *Roster[*plain], n int, now time.Time) {
			r.SetTrust("a", replica.Syncing)
			r.expect(other(n, 64), 0, now)
		}, 0},
		{"an engine that has never told nor found anything", "", func(r *Roster[*plain], n int, now time.Time) {
			if n == 0 {
				r.Forget("a")
			}
			r.expect(other(n, 64), 0, now)
		}, 0},
		{"one that has found something", "", func(r *Roster[*plain], n int, now time.Time) {
			if n == 0 {
				r.Forget("a")
			}
			r.expect(other(n, 64), 16, now)
		}, 5},
		{"events come meanwhile", "", func(r *Roster[*plain], n int, now time.Time) {
			r.expect(other(n, 64), 0, now)
			if n == 2 {
				r.Apply("a", stored(16, count(64)))
			}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := announcing(c.replay)
			for n := range 5 {
				c.tell(r, n, start.Add(time.Duration(n)*time.Second))
			}
			if got, since := r.Unannounced("a", start.Add(silentFor-1)); got != 0 {
				t.Errorf("%d prompts after %v: it was not waited for", got, since)
			}
			got, since := r.Unannounced("a", start.Add(silentFor))
			if got != c.want || got > 0 && since != silentFor {
				t.Errorf("%d prompts for %v, want %d", got, since, c.want)
			}
		})
	}
}

// The index has the blocks of a batch before the batch counts as told, so an answer before its batch is
// never counted. A state that begins anew counts from zero.
func TestUnannouncedBeginsAnew(t *testing.T) {
	r := announcing("")
	for n := range 5 {
		r.expect(other(n, 64), 0, start)
	}
	later := start.Add(time.Minute)
	if got, _ := r.Unannounced("a", later); got != 5 {
		t.Fatalf("%d prompts", got)
	}
	r.SetTrust("a", replica.Stale)
	r.SetTrust("a", replica.Live)
	if got, _ := r.Unannounced("a", later); got != 0 {
		t.Errorf("%d prompts of a stream that was mended", got)
	}
	if got, _ := r.Unannounced("nobody", later); got != 0 {
		t.Errorf("%d prompts of nobody", got)
	}
}

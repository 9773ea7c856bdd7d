package decode

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
)

// keysFrom names the blocks of a prompt that diverges at one block.
func keysFrom(fork, to, n int) []kv.Key {
	keys := make([]kv.Key, n)
	for i := range keys {
		if keys[i] = kv.Key(i + 1); i >= fork {
			keys[i] += kv.Key(1e6*fork + 1e9*(to+1))
		}
	}
	return keys
}

// The work before a prompt, and behind it, equals the sum of a walk over all prompts.
func TestWhatGoesBeforeAPrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := inPieces(), start
		var live []*Lease
		defer stream1(t, p).Release(start)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) == 0 || rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				l, _ := alone(t, p, rapid.IntRange(100, 8000).Draw(t, "tokens"), now)
				live = append(live, l)
			}
			l := rapid.SampledFrom(live).Draw(t, "which")
			steps := []string{"next", "next", "computed", "failed", "sent", "first", "end"}
			switch rapid.SampledFrom(steps).Draw(t, "does") {
			case "next":
				l.Next(now, func() {})
			case "computed":
				l.Computed(true, -1, Pauses{}, now)
			case "failed":
				l.Computed(false, -1, Pauses{}, now)
			case "sent":
				l.MarkSent(now)
			case "first":
				l.FirstToken(now)
			case "end":
				l.Release(now)
				live = slices.DeleteFunc(live, func(o *Lease) bool { return o == l })
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			checkSums(t, p)
			due := p.ledger.At(now) + rapid.Int64Range(-1e9, 1e9).Draw(t, "due")
			checkBefore(t, p.members.All[0], due, now)
		}
		for _, l := range live {
			l.Release(now)
		}
		checkSums(t, p)
	})
}

func checkBefore(t *rapid.T, m *member, due int64, now time.Time) {
	var behind []*Lease
	for _, e := range m.account.Leases() {
		if e.Local && e.Missing() {
			behind = append(behind, owner(e))
		}
	}
	slices.SortFunc(behind, func(a, b *Lease) int { return cmp.Compare(a.entry.ID(), b.entry.ID()) })
	work, longer := m.local.turns.Work(), 0
	front := m.local.front()
	for i, l := range behind {
		if l.pieces.On && l.due() > due {
			longer++
			work -= l.pieces.Predicted
			if i == 0 {
				front.Work = 0
			}
		}
	}
	want := max(0, work-front.Ran(now)).Seconds()
	if wait, n := m.local.before(due, 0, now); n != longer || math.Abs(wait-want) > 1e-9 {
		t.Fatalf("a turn at %d waits for %g s and goes before %d, want %g and %d", due, wait, n, want, longer)
	}
	for _, l := range behind {
		others := slices.ContainsFunc(behind, func(o *Lease) bool {
			return o != l && (!o.pieces.On || o.pieces.Upto > 0)
		})
		if got := m.local.turns.Beside(&l.pieces); got != others {
			t.Fatalf("the engine has others to compute: %v, want %v", got, others)
		}
	}
}

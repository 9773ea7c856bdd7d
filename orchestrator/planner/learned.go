package planner

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// Learned is the learned numbers that outlive a process.
type Learned = estimate.State

// keyOf returns the key of r; false while it is not known what runs there.
func keyOf(r *replica.Replica) (estimate.EngineKey, bool) {
	k := estimate.EngineKey{
		Prefill: r.Role == replica.Prefill, URL: r.URL, Rank: r.Rank, Root: r.Facts.Root,
		Version: r.Facts.Version, Print: r.Facts.Fingerprint,
	}
	return k, k.URL != "" && k.Root != "" && k.Version != ""
}

// maxLinks is of how many pairs the bandwidth is kept.
const maxLinks = 1 << 14

// Learned returns the numbers learned until now.
func (pl *Planner) Learned(now time.Time) Learned {
	out := Learned{At: now, Lengths: pl.decode.Lengths()}
	engines := map[replica.ID]*replica.Replica{}
	for _, r := range pl.prefill.CurrentView().Replicas {
		key, known := keyOf(r)
		if s, measured := pl.prefill.SpeedsOf(r.ID); known && measured {
			out.Speeds = append(out.Speeds, estimate.EngineSpeeds{Engine: key, Pool: s.Prefill, Reads: s.Reads})
		}
		engines[r.ID] = r
	}
	for _, r := range pl.decode.CurrentView().Replicas {
		key, known := keyOf(r)
		if speeds, measured := pl.decode.SpeedsOf(r.ID); known && measured {
			out.Speeds = append(out.Speeds, estimate.EngineSpeeds{Engine: key, Decode: speeds})
		}
		engines[r.ID] = r
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	out.Links = pl.pairs.measured(engines)
	return out
}

// RestoreLengths lets lengths without samples begin with the saved lengths in l.
func (pl *Planner) RestoreLengths(l *Learned, now time.Time) (taken int) {
	return pl.decode.RestoreLengths(l.Lengths, estimate.Faded(l.At, now))
}

// RestoreReplicas lets replicas without samples begin with their saved speeds and links in l. It removes the
// used entries from l; the others wait for replicas that have yet to join. It returns how many entries it
// restored.
func (pl *Planner) RestoreReplicas(l *Learned, now time.Time) (taken int) {
	engines := map[estimate.EngineKey]*replica.Replica{}
	for _, replicas := range [][]*replica.Replica{
		pl.prefill.CurrentView().Replicas, pl.decode.CurrentView().Replicas,
	} {
		for _, r := range replicas {
			if key, known := keyOf(r); known {
				engines[key] = r
			}
		}
	}
	l.Speeds = slices.DeleteFunc(l.Speeds, func(s estimate.EngineSpeeds) bool {
		r := engines[s.Engine]
		if r == nil {
			return false
		}
		restore, saved := pl.decode.RestoreSpeeds, s.Decode
		if s.Engine.Prefill {
			restore, saved = pl.prefill.RestoreSpeeds, estimate.Speeds{Prefill: s.Pool, Reads: s.Reads}
		}
		if restore(r.ID, saved, now) {
			taken++
		}
		return true
	})
	pl.mu.Lock()
	defer pl.mu.Unlock()
	l.Links = slices.DeleteFunc(l.Links, func(s estimate.PairLink) bool {
		p, d := engines[s.From], engines[s.To]
		if p == nil || d == nil {
			return false
		}
		if pl.pairs.restore(p, d, s.PerByte, estimate.Faded(s.At, now), now) {
			taken++
		}
		return true
	})
	pl.pairs.stale()
	return taken
}

// LinkSpeeds lists the measured paths as of the newest plan, in order of their pairs. Safe for concurrent
// use.
func (pl *Planner) LinkSpeeds(now time.Time) []LinkSpeed {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.pairs.speeds(now)
}

// LinkKinds returns, for each kind of path, the bytes per second assumed for unmeasured paths of this kind.
// Safe for concurrent use.
func (pl *Planner) LinkKinds() (speeds [replica.Links]float64) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for kind := range speeds {
		speeds[kind] = 1 / pl.pairs.links.kinds[kind].Common(1/pl.policy.Links[kind])
	}
	return speeds
}

// restore sets the seconds per byte with which the link of an unmeasured pair begins.
func (t *pairs) restore(p, d *replica.Replica, perByte, believed float64, now time.Time) bool {
	kind, link := &t.links.kinds[kindOf(p, d)], t.links.get(Pairing{Prefill: p.ID, Decode: d.ID})
	return kind.Restore(link, t.policy.seed(p, d), perByte, believed, now)
}

// measured returns the measured links between the given replicas, in order.
func (t *pairs) measured(engines map[replica.ID]*replica.Replica) (links []estimate.PairLink) {
	for pair, link := range t.links.of {
		p, d := engines[pair.Prefill], engines[pair.Decode]
		state, measured := link.State()
		if p == nil || d == nil || !measured {
			continue
		}
		from, known := keyOf(p)
		to, both := keyOf(d)
		if known && both {
			links = append(links, estimate.PairLink{LinkState: state, From: from, To: to})
		}
	}
	slices.SortFunc(links, func(a, b estimate.PairLink) int {
		return cmp.Or(cmp.Compare(a.From.URL, b.From.URL), cmp.Compare(a.From.Rank, b.From.Rank),
			cmp.Compare(a.To.URL, b.To.URL), cmp.Compare(a.To.Rank, b.To.Rank))
	})
	return links[:min(len(links), maxLinks)]
}

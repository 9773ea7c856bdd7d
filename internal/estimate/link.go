package estimate

import (
	"math"
	"slices"
	"time"
)

// A link is the path between two engines. What is learned of it is the seconds that a byte takes. Links of
// one kind (within a host, a rack, a zone, or beyond) are likely to be alike, so that a link of which
// nothing was measured is taken for what those of its kind were measured to be.
//
// Nobody sends blocks over a link that is taken for slow, so that nothing would be learned when it is well,
// or always was. What is believed holds for linkHolds without a sample, then it goes towards what is
// faster: of one link to what its kind is, and of a whole kind to the fastest that there may be. Half of
// the way, as a logarithm, takes linkEaseHalf. Whoever is sent over the link takes that back, see
// [Link.Touch], so that one request tries it and not all of those that come before it has told.
const (
	linkHolds    = 10 * time.Second
	linkEaseHalf = 30 * time.Second

	fastest = 1 / 400e9 // seconds a byte: no engine is connected by more
	slowest = 1 / 1e6
)

// Kind learns what the links of one kind have in common. The zero Kind knows nothing.
type Kind struct {
	votes []linkVote // the newest word of each of the links that were measured last, oldest first
	at    time.Time
}

// linkVote is what a link was last measured to be, as a logarithm.
type linkVote struct {
	by  *Link
	log float64
}

// Of how many links the newest word counts, and from how many on what the operator says counts no longer.
// The middle one of them is believed, so that one link that is unlike the others is not taken for all.
const (
	votes      = 8
	votesAlone = 3
)

// alike is the factor within which a link is taken to be as its kind was measured to be. Measurements are
// not much better than that, and if they decided between links that are the same, all transfers would go
// over the one that was lucky.
const alike = 1.5

// Link learns one link. The zero Link knows nothing.
type Link struct {
	value
	touched time.Time // when somebody was sent over it last
}

// PerByte returns the seconds a byte that are believed of l, a link of this kind of which the operator says
// told; l is nil where nothing was measured.
func (k *Kind) PerByte(l *Link, told float64, now time.Time) float64 {
	kept := 1.0
	if !k.at.IsZero() {
		kept = keep(k.at, now)
	}
	if len(k.votes) == 0 && kept == 1 {
		return told
	}
	common := k.log(told)
	log := common
	if l != nil && l.samples > 0 && (len(k.votes) < votesAlone || math.Abs(l.log-common) > math.Log(alike)) {
		if log = l.log; log > common {
			log = common + max(keep(l.at, now), keep(l.touched, now))*(log-common)
		}
	}
	// A kind over which nothing comes is eased by as much for all of its links.
	if away := common - math.Log(fastest); away > 0 {
		log = max(math.Log(fastest), log-(1-kept)*away)
	}
	return math.Exp(log)
}

// keep returns how much is kept of by how much slower something was measured to be at some time.
func keep(at, now time.Time) float64 {
	idle := now.Sub(at) - linkHolds
	if idle <= 0 {
		return 1
	}
	return math.Exp2(-idle.Seconds() / linkEaseHalf.Seconds())
}

// Common returns the seconds a byte that the links of k are taken for of which nothing was measured.
func (k *Kind) Common(told float64) float64 { return math.Exp(k.log(told)) }

func (k *Kind) log(told float64) float64 {
	var logs [votes + 1]float64
	n := 0
	for _, v := range k.votes {
		logs[n] = v.log
		n++
	}
	if n < votesAlone {
		logs[n] = math.Log(told)
		n++
	}
	slices.Sort(logs[:n])
	return (logs[(n-1)/2] + logs[n/2]) / 2
}

// Begin notes that links of the kind are there, from when on it counts for how long nothing has come over
// them.
func (k *Kind) Begin(now time.Time) {
	if k.at.IsZero() {
		k.at = now
	}
}

// Touch notes that somebody is sent over l, or over another link of the kind where l is nil: nobody follows
// until that has told whether it has become faster, or linkHolds is over.
func (k *Kind) Touch(l *Link, now time.Time) {
	k.at = now
	if l != nil && l.samples > 0 {
		l.touched = now
	}
}

// Learn takes in a sample of l, a [LinkTime]. The operator says told of l. It reports whether what is
// believed has changed.
func (k *Kind) Learn(l *Link, told float64, s Sample) (moved bool) {
	first := l.samples == 0
	bounds := Range{min(max(s.Low, 0), slowest), max(s.High, fastest)}
	if !(bounds.Low <= bounds.High) {
		return false // it says nothing
	}
	moved = l.learn(k.Common(told), bounds, s.At)
	k.at = s.At
	k.vote(l)
	return moved || first
}

// vote makes the newest word of l count.
func (k *Kind) vote(l *Link) {
	k.votes = slices.DeleteFunc(k.votes, func(v linkVote) bool { return v.by == l })
	if len(k.votes) == votes {
		k.votes = slices.Delete(k.votes, 0, 1)
	}
	k.votes = append(k.votes, linkVote{l, l.log})
}

// Estimate returns what is believed of l.
func (k *Kind) Estimate(l *Link, told float64, now time.Time) Estimate {
	e := Estimate{Error: guessed}
	if l != nil && l.samples > 0 {
		e = l.estimate(now)
	}
	e.Value = k.PerByte(l, told, now)
	return e
}

// LinkState is what was measured of a link, as it outlives a process.
type LinkState struct {
	At      time.Time `json:"at"`
	PerByte float64   `json:"seconds_per_byte"`
}

// State returns what was measured of l; false where that is nothing.
func (l *Link) State() (LinkState, bool) {
	return LinkState{l.at, math.Exp(l.log)}, l.samples > 0
}

// Restore lets l, of which nothing was measured yet, begin with so many seconds a byte. The less of that is
// believed (0..1), the nearer it is to what the operator says. It reports whether that was taken.
func (k *Kind) Restore(l *Link, told, perByte, believed float64, now time.Time) bool {
	if l.samples > 0 || !(perByte > 0) || math.IsInf(perByte, 0) || math.IsNaN(believed) {
		return false
	}
	perByte = min(max(perByte, fastest), slowest)
	log := math.Log(told)
	log += min(max(believed, 0), 1) * (math.Log(perByte) - log)
	l.value = value{log: log, spread: math.Log(guessed), samples: 1, at: now}
	k.vote(l)
	k.at = now
	return true
}

package estimate

import (
	"math"
	"slices"
	"time"
)

// A link is the network path between two engines. A Link learns the seconds per byte. Links of one kind
// (within a host, a rack, a zone, or beyond) are probably alike, so a link without samples gets the estimate
// of its kind.
//
// No request sends blocks over a link that is believed slow, so no sample would ever correct the estimate.
// An estimate therefore holds for easeAfter without a sample. Then it moves toward faster values: a link
// toward its kind, and a kind toward the fastest possible link. In each linkEaseHalf it moves half of the
// way, in the logarithm. A request that is sent over the link resets this movement (see [Link.Touch]), so
// that one request tests the link and others wait for the result.
const (
	linkEaseHalf = 30 * time.Second

	fastest = 1 / 400e9 // seconds per byte: no engine has a faster link
	slowest = 1 / 1e6
)

// Kind learns what the links of one kind have in common. The zero Kind knows nothing.
type Kind struct {
	votes []linkVote // the newest samples of the links that were measured last, oldest first
	at    time.Time
}

// linkVote is the newest estimate of one link, as a logarithm.
type linkVote struct {
	by  *Link
	log float64
}

// A kind takes the median of the newest estimates of at most votes links, so that one unusual link does not
// decide for all. From votesAlone links on, the operator's value no longer counts.
const (
	votes      = 8
	votesAlone = 3
)

// alike is the factor within which a link counts as equal to its kind. Measurements are not much more exact
// than this factor. If small differences decided between equal links, all transfers would use the luckiest
// one.
const alike = 1.5

// Link learns one link. The zero Link knows nothing.
type Link struct {
	value
	touched time.Time // when a request was last sent over the link
}

// PerByte returns the estimated seconds per byte of l, a link of kind k. told is the operator's value. l is
// nil for a link without samples.
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
	// Without samples of the kind, all its links become faster by the same factor.
	if away := common - math.Log(fastest); away > 0 {
		log = max(math.Log(fastest), log-(1-kept)*away)
	}
	return math.Exp(log)
}

// keep returns the share that remains of an excess measured at some time.
func keep(at, now time.Time) float64 {
	idle := now.Sub(at) - easeAfter
	if idle <= 0 {
		return 1
	}
	return math.Exp2(-idle.Seconds() / linkEaseHalf.Seconds())
}

// Common returns the estimated seconds per byte of the links of k without samples.
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

// Begin records that links of the kind exist. The time without samples counts from now.
func (k *Kind) Begin(now time.Time) {
	if k.at.IsZero() {
		k.at = now
	}
}

// Touch records that a request was sent over l, or over another link of the kind if l is nil. No other
// request tests the link until a sample arrives or easeAfter is over.
func (k *Kind) Touch(l *Link, now time.Time) {
	k.at = now
	if l != nil && l.samples > 0 {
		l.touched = now
	}
}

// Learn takes in a [LinkTime] of l. told is the operator's value. Learn reports whether the estimate has
// changed.
func (k *Kind) Learn(l *Link, told float64, s Sample) (moved bool) {
	first := l.samples == 0
	bounds := Range{min(max(s.Low, 0), slowest), max(s.High, fastest)}
	if !(bounds.Low <= bounds.High) {
		return false // the sample is impossible
	}
	moved = l.learn(k.Common(told), bounds, s.At)
	k.at = s.At
	k.vote(l)
	return moved || first
}

// vote enters the newest estimate of l.
func (k *Kind) vote(l *Link) {
	k.votes = slices.DeleteFunc(k.votes, func(v linkVote) bool { return v.by == l })
	if len(k.votes) == votes {
		k.votes = slices.Delete(k.votes, 0, 1)
	}
	k.votes = append(k.votes, linkVote{l, l.log})
}

// Estimate returns the estimate of l.
func (k *Kind) Estimate(l *Link, told float64, now time.Time) Estimate {
	e := Estimate{Error: guessed}
	if l != nil && l.samples > 0 {
		e = l.estimate(now)
	}
	e.Value = k.PerByte(l, told, now)
	return e
}

// LinkState is the saved estimate of a link.
type LinkState struct {
	At      time.Time `json:"at"`
	PerByte float64   `json:"seconds_per_byte"`
}

// State returns the estimate of l, and false if l has no samples.
func (l *Link) State() (LinkState, bool) {
	return LinkState{l.at, math.Exp(l.log)}, l.samples > 0
}

// Restore lets l, which has no samples yet, begin with a saved estimate. The lower its weight believed
// (0..1), the nearer l is to the operator's value. Restore reports whether it took the estimate.
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

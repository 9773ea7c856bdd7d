package scoring

import "math"

// OutputLength learns how long answers are and says how much is still to come of one that has some tokens
// already. Make one with [NewOutputLength].
//
// It is a histogram with two buckets an octave and slow forgetting. Not safe for concurrent use.
type OutputLength struct {
	count, sum [lengthBuckets]float64
	seen       int
}

const (
	lengthBuckets = 40    // 2^20 tokens
	lengthKeep    = 0.998 // about 500 answers
	lengthPrior   = 10    // answers that the first guess counts for
	lengthTail    = 0.25  // of its age, is what an answer longer than any before is expected to go on for
	lengthFew     = 0.5   // answers are too few to expect the like of them
	lengthMax     = 1 << 20
)

// NewOutputLength starts from a guess of the mean, spread as lifetimes without memory are.
func NewOutputLength(mean int) OutputLength {
	var l OutputLength
	for i := range lengthPrior {
		quantile := (float64(i) + 0.5) / lengthPrior
		l.put(-math.Log(1-quantile) * float64(max(mean, 1)))
	}
	return l
}

// Learn takes in an answer of so many tokens. Answers without a token are ignored.
func (l *OutputLength) Learn(tokens int) {
	if tokens < 1 {
		return
	}
	for i := range l.count {
		l.count[i] *= lengthKeep
		l.sum[i] *= lengthKeep
	}
	l.put(float64(min(tokens, lengthMax)))
	l.seen++
}

// LearnCut takes in an answer that a limit ended after so many tokens: it would have gone on, and how long is
// not known. It counts as the longer ones do that were seen, in their proportions.
func (l *OutputLength) LearnCut(tokens int) {
	if tokens < 1 {
		return
	}
	have := float64(min(tokens, lengthMax))
	longer := 0.0
	for i, count := range l.count {
		if mean := l.mean(i); mean > have {
			longer += count
		}
	}
	if longer < lengthFew {
		l.Learn(int(have*(1+lengthTail)) + 1)
		return
	}
	for i, count := range l.count {
		mean := l.mean(i)
		l.count[i], l.sum[i] = count*lengthKeep, l.sum[i]*lengthKeep
		if mean > have {
			l.count[i] += count / longer
			l.sum[i] += count / longer * mean
		}
	}
	l.seen++
}

// mean returns the mean length of bucket i, 0 where it is empty.
func (l *OutputLength) mean(i int) float64 {
	if l.count[i] < 1e-9 {
		return 0
	}
	return l.sum[i] / l.count[i]
}

// Seen returns how many answers were learned from.
func (l *OutputLength) Seen() int { return l.seen }

// Rest returns how many tokens an answer that has generated some already is expected to add, and never more
// than limit (below zero: no limit).
func (l *OutputLength) Rest(generated, limit int) int {
	have := float64(max(generated, 0))
	stop := math.Inf(1)
	if limit >= 0 {
		stop = have + float64(limit)
	}
	var weight, rest float64
	for i := range l.count {
		if mean := l.mean(i); mean > have {
			weight += l.count[i]
			rest += l.count[i] * (min(mean, stop) - have)
		}
	}
	if weight < lengthFew { // older than nearly all that were seen
		rest, weight = min(have*lengthTail+1, stop-have), 1
	}
	expected := int(math.Ceil(rest/weight - 1e-6))
	if limit >= 0 {
		return min(expected, limit)
	}
	return expected
}

func (l *OutputLength) put(tokens float64) {
	i := bucketOf(tokens)
	l.count[i]++
	l.sum[i] += tokens
}

func bucketOf(tokens float64) int {
	if tokens < 2 {
		return 0
	}
	return min(int(2*math.Log2(tokens)), lengthBuckets-1)
}

package estimate

import "math"

// OutputLength learns the lengths of answers and predicts the tokens still to come of a running answer.
// [NewOutputLength] makes the root of a tree. [OutputLength.Under] makes a class below it, which follows the
// level above until it has seen enough answers itself. Neither an OutputLength nor a whole tree is safe
// for concurrent use.
//
// It counts, in length buckets of half an octave, how many answers ended in each bucket and how many went
// beyond the bucket (the Kaplan-Meier estimate). So running answers and answers cut by a limit also count, as
// longer than their present length. Otherwise the first answers to end, which are short, would stand for all.
//
// There are two predictions. Rest is the expected length, for the cost of an answer. Room is the length to
// reserve: equal to Rest after many answers, and larger after few. An error of the estimate is shared by all
// running answers, while the differences of single answers cancel out.
type OutputLength struct {
	above *OutputLength // nil: guess
	part  bool          // follows above as long as above has learned from no other group

	seen   seenAnswers
	events uint64        // calls of Passed and Learn that changed something
	first  float64       // weight of the guess, or of the level above, at first; usually 1
	belief float64       // the same weight now, from first down
	guess  *distribution // the distribution before any answer; nil below the root
	wide   *distribution // the same for cautious predictions

	spreads spreads // computed from all of the above
}

// seenAnswers counts answers by the bucket of their length.
type seenAnswers struct {
	ended  [lengthBuckets]float64 // answers whose length is in the bucket
	tokens [lengthBuckets]float64 // their tokens, in total
	beyond [lengthBuckets]float64 // answers that reached the bucket and are longer
	inside [lengthBuckets]float64 // sum of the parts of the bucket that running answers have passed
	news   bool                   // the spreads are out of date
}

// spreads are the estimated distributions of lengths: the likely one and the cautious one.
type spreads struct {
	likely, cautious spread
	version          int // counts the computations; 0: never computed
	versionAbove     int // the version above that was used
}

const (
	lengthBuckets = 40    // up to 2^20 tokens and more
	lengthKeep    = 0.998 // per answer: a memory of about 500 answers
	lengthBelief  = 10    // weight, in answers, of the guess or of the level above at first
	lengthDoubt   = 1     // weight, in answers, of the cautious guess
	lengthTail    = 0.25  // an answer longer than any before is expected to add this share of its length
	lengthMax     = 1 << 20
	lengthLeast   = 1e-3 // least weight of the guess: unseen lengths have no other estimate
)

// NewOutputLength starts from a guess of the mean. The real mean may be larger by the factor doubt; 1 means
// no doubt. The guess is a Lomax distribution (exponential lifetimes with an uncertain rate), so that the
// expected rest grows with the length. It weighs as much as more answers beyond the usual weight.
func NewOutputLength(mean int, doubt, more float64) *OutputLength {
	guess, first := float64(max(mean, 1)), 1+more/lengthBelief
	l := &OutputLength{first: first, belief: first, guess: lomax(guess)}
	l.wide = l.guess
	if doubt > 1 {
		l.wide = lomax(guess * doubt)
	}
	return l
}

// Under returns an OutputLength for a class of l's answers. What the class learns, l learns too.
func (l *OutputLength) Under() *OutputLength {
	return &OutputLength{above: l, first: l.first, belief: l.first}
}

// Part returns an OutputLength for some of l's answers, as [OutputLength.Under] does. As long as l has
// learned only from this part, both predict the same.
func (l *OutputLength) Part() *OutputLength {
	p := l.Under()
	p.part = true
	return p
}

// said returns the level of the tree whose prediction holds for l.
func (l *OutputLength) said() *OutputLength {
	for l.part && l.events == l.above.events {
		l = l.above
	}
	return l
}

// Passed records that a running answer grew from so many known tokens to so many. If to is smaller, the
// earlier records are undone. After Passed, each answer needs a call of Learn or Cut at its end.
func (l *OutputLength) Passed(from, to int) {
	if from == to {
		return
	}
	for ; l != nil; l = l.above {
		l.events++
		l.seen.pass(from, to)
	}
}

// Learn records the length of a finished answer. from is the length of the last call of
// [OutputLength.Passed], 0 without such a call. Answers without a token are ignored.
func (l *OutputLength) Learn(from, tokens int) {
	tokens = min(max(tokens, 0), lengthMax)
	l.Passed(from, tokens)
	if tokens < 1 {
		return
	}
	for ; l != nil; l = l.above {
		l.events++
		l.seen.end(tokens)
		l.belief = max(l.belief*lengthKeep, lengthLeast)
	}
}

// Cut records that a running answer with so many tokens will not be observed any longer.
func (l *OutputLength) Cut(from, tokens int) {
	l.Passed(from, tokens)
	if tokens < 1 {
		return
	}
	for ; l != nil; l = l.above {
		l.events++
		l.seen.cut(tokens)
	}
}

// pass records that a running answer grew from so many tokens to so many. The answer counts for the part of
// its bucket that it has passed. Otherwise running answers would not count beside the few finished answers,
// and short answers finish first.
func (s *seenAnswers) pass(from, to int) {
	a, b := bucketOf(from), bucketOf(to)
	s.inside[a] -= passed(from, a)
	s.inside[b] += passed(to, b)
	s.news = true
	for i := a; i < b; i++ {
		s.forget(i)
		s.beyond[i]++
	}
	for i := b; i < a; i++ {
		s.beyond[i] = max(0, s.beyond[i]-1)
	}
}

// end records that an answer ended with so many tokens.
func (s *seenAnswers) end(tokens int) {
	i := bucketOf(tokens)
	s.inside[i] -= passed(tokens, i)
	s.forget(i)
	s.ended[i]++
	s.tokens[i] += float64(tokens)
}

// cut records that an answer with so many tokens is not observed any longer.
func (s *seenAnswers) cut(tokens int) {
	i := bucketOf(tokens)
	part := passed(tokens, i)
	s.inside[i] -= part
	s.beyond[i] += part
	s.news = true
}

// passed returns the part of a bucket that an answer of so many tokens has passed.
func passed(tokens, bucket int) float64 {
	from, to := bucketStart(bucket), bucketStart(bucket+1)
	return min(max(0, (float64(tokens)-from)/(to-from)), 1)
}

// forget reduces the weight of the old answers in bucket i. Other buckets keep their weight: an answer that
// was cut at one token says nothing about longer answers.
func (s *seenAnswers) forget(i int) {
	s.ended[i] *= lengthKeep
	s.tokens[i] *= lengthKeep
	s.beyond[i] *= lengthKeep
	s.news = true
}

// Rest returns how many more tokens are expected of an answer that has generated some already, at most limit
// (below zero: no limit).
func (l *OutputLength) Rest(generated, limit int) int {
	l = l.said()
	l.work()
	return l.spreads.likely.rest(generated, limit)
}

// Room is the cautious form of Rest, for reservations.
func (l *OutputLength) Room(generated, limit int) int {
	l = l.said()
	l.work()
	return max(l.spreads.likely.rest(generated, limit), l.spreads.cautious.rest(generated, limit))
}

// work recomputes the spreads if their input has changed.
func (l *OutputLength) work() {
	likely, cautious := l.guess, l.wide
	doubt, above := float64(lengthDoubt), 0
	if l.above != nil {
		l.above.work()
		likely, cautious = &l.above.spreads.likely.distribution, &l.above.spreads.cautious.distribution
		doubt, above = lengthBelief, l.above.spreads.version
	}
	s := &l.spreads
	if s.version > 0 && !l.seen.news && above == s.versionAbove {
		return
	}
	s.version++
	s.versionAbove, l.seen.news = above, false
	s.likely.work(&l.seen, likely, lengthBelief*l.belief)
	s.cautious.work(&l.seen, cautious, doubt*l.belief)
}

// distribution says how answers are spread over the buckets.
type distribution struct {
	share  [lengthBuckets]float64     // share of all answers in the bucket
	mean   [lengthBuckets]float64     // mean tokens of answers in the bucket
	longer [lengthBuckets + 1]float64 // share of answers in the bucket and above
}

// lomax returns the Lomax distribution of a mean, whose expected rest grows by lengthTail of the length.
func lomax(mean float64) *distribution {
	const shape = 1 + 1/lengthTail
	scale := mean / lengthTail
	longer := func(than float64) float64 { return math.Pow(1+than/scale, -shape) }
	// tokens is the mean of all answers longer than that, times their share.
	tokens := func(than float64) float64 { return (than + mean + than*lengthTail) * longer(than) }
	l := new(distribution)
	const last = lengthBuckets - 1
	for i := range last {
		from, to := bucketStart(i), bucketStart(i+1)
		l.longer[i] = longer(from)
		l.share[i] = longer(from) - longer(to)
		l.mean[i] = (tokens(from) - tokens(to)) / l.share[i]
	}
	from := bucketStart(last)
	l.longer[last], l.share[last] = longer(from), longer(from)
	l.mean[last] = tokens(from) / longer(from)
	return l
}

// spread is a distribution with sums for fast queries. All answers of a bucket count as long as their mean.
type spread struct {
	distribution
	tokens [lengthBuckets + 1]float64 // of answers in the bucket and above, times their share
}

// work computes s from the observed answers, and from prior with the weight of so many answers.
func (s *spread) work(seen *seenAnswers, prior *distribution, answers float64) {
	s.longer[0] = 1
	for i := range s.share {
		share, longer := answers*prior.share[i], answers*prior.longer[i+1]
		here, on := seen.ended[i]+share, seen.beyond[i]+max(0, seen.inside[i])+longer
		if i == lengthBuckets-1 {
			on = 0
		}
		each := s.longer[i] / (here + on)
		s.share[i], s.longer[i+1] = each*here, each*on
		s.mean[i] = (seen.tokens[i] + share*prior.mean[i]) / here
	}
	for i := lengthBuckets - 1; i >= 0; i-- {
		s.tokens[i] = s.tokens[i+1] + s.share[i]*s.mean[i]
	}
}

// rest returns the mean rest of answers longer than generated, each rest at most limit.
func (s *spread) rest(generated, limit int) int {
	have := float64(max(generated, 0))
	i := s.after(have)
	expected := have*lengthTail + 1
	if longer := s.longer[i]; longer > 0 {
		stop := lengthBuckets // answers from this bucket on are cut by the limit
		if limit >= 0 {
			stop = s.after(have + float64(limit))
		}
		tokens := s.tokens[i] - s.tokens[stop] - have*(longer-s.longer[stop])
		if limit >= 0 {
			tokens += float64(limit) * s.longer[stop]
		}
		expected = tokens / longer
	}
	rest := int(math.Ceil(expected - 1e-6))
	if limit >= 0 {
		return min(rest, limit)
	}
	return rest
}

// after returns the first bucket whose answers are longer than so many tokens.
func (s *spread) after(tokens float64) int {
	i := bucketOf(int(tokens))
	if s.mean[i] > tokens {
		return i
	}
	return i + 1
}

// Known returns the observed share of the estimate, 0..1; the rest is a guess.
func (l *OutputLength) Known() float64 {
	seen := 0.0
	for _, ended := range l.seen.ended {
		seen += ended
	}
	return seen / (seen + lengthDoubt)
}

// Survive fills in, for each number of further steps, the cautious chance that an answer with has tokens
// continues so long. A step adds step tokens. Lengths are exact to a quarter of an octave.
func (l *OutputLength) Survive(has int, step float64, steps, chance []float64) {
	l = l.said()
	l.work()
	now := l.spreads.cautious.beyond(float64(has))
	for k, more := range steps {
		if chance[k] = 0; now > 0 {
			chance[k] = l.spreads.cautious.beyond(float64(has)+more*step/quarterOctave) / now
		}
	}
}

const quarterOctave = 1.189

// beyond returns the share of answers that are longer than so many tokens.
func (s *spread) beyond(tokens float64) float64 {
	i := bucketOf(int(tokens))
	from, to := bucketStart(i), bucketStart(i+1)
	return s.longer[i+1] + s.share[i]*max(0, min((to-tokens)/(to-from), 1))
}

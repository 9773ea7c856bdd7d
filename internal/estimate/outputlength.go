package estimate

import "math"

// OutputLength learns how long answers are and says how much is still to come of one that has some tokens
// already. [NewOutputLength] makes the first, [OutputLength.Under] one of a class of its answers, which
// believes the other until it has seen enough itself. Not safe for concurrent use, nor are those of one
// tree.
//
// It counts, for lengths in buckets of half an octave, how many answers ended in a bucket and how many went
// beyond it (Kaplan and Meier's estimate). So answers that are under way, or that a limit has cut, say what
// they can: that they are longer. Else the first to end would be taken for all, and they are the short ones.
//
// Two things can be asked: Rest is how much is expected, for what an answer costs. Room is how much to keep
// free: the same as long as much was seen, and what it may well come to while little was. Answers side by
// side share that error, while what one is longer than expected another is shorter.
type OutputLength struct {
	above *OutputLength // nil: guess
	part  bool          // says what above says as long as above has seen nothing else

	seen   seenAnswers
	events uint64        // calls of Passed and Learn that told something
	belief float64       // how much the guess, or the class above, counts for, from 1 down
	guess  *distribution // what is taken to be so before anything was seen; nil under another
	wide   *distribution // the same, as long as it may well be

	spreads spreads // what follows from all that
}

// seenAnswers counts answers by the bucket of their length.
type seenAnswers struct {
	ended  [lengthBuckets]float64 // answers whose length is in the bucket
	tokens [lengthBuckets]float64 // of those, together
	beyond [lengthBuckets]float64 // answers that reached the bucket and are longer
	inside [lengthBuckets]float64 // which parts of it those under way have behind them, together
	news   bool                   // something that the spreads do not have
}

// spreads is how answers are spread, as far as is known: as is likely, and as long as they may well be.
type spreads struct {
	likely, cautious spread
	version          int // counts up each time that they are worked out; 0: never
	versionAbove     int // of those above, that they were worked out from
}

const (
	lengthBuckets = 40    // up to 2^20 tokens and more
	lengthKeep    = 0.998 // about 500 answers
	lengthBelief  = 10    // answers that the guess, or the class above, counts for at first
	lengthDoubt   = 1     // answers that the guess of how long they may be counts for
	lengthTail    = 0.25  // of its age, is what an answer longer than any before is expected to go on for
	lengthMax     = 1 << 20
	lengthLeast   = 1e-3 // of its belief in the guess stays: of lengths never seen nothing else is known
)

// NewOutputLength starts from a guess of the mean, which may well be too small by the given factor (1: is
// not). Lengths are spread as lifetimes without memory are whose rate is not quite known, so that the older
// an answer is the more is expected of it.
func NewOutputLength(mean int, doubt float64) *OutputLength {
	guess := float64(max(mean, 1))
	l := &OutputLength{belief: 1, guess: lomax(guess)}
	l.wide = l.guess
	if doubt > 1 {
		l.wide = lomax(guess * doubt)
	}
	return l
}

// Under returns an OutputLength for a class of l's answers. What it learns, l learns too.
func (l *OutputLength) Under() *OutputLength { return &OutputLength{above: l, belief: 1} }

// Part returns one for some of l's answers, as [OutputLength.Under] does. Where all that l has seen was
// theirs they say the same: what is one class alone need not be kept apart.
func (l *OutputLength) Part() *OutputLength {
	p := l.Under()
	p.part = true
	return p
}

// said returns who says what is known of l's answers.
func (l *OutputLength) said() *OutputLength {
	for l.part && l.events == l.above.events {
		l = l.above
	}
	return l
}

// Passed takes in that an answer under way, which was known to have so many tokens, has so many now. Where
// it has fewer, what was said of it is taken back. Of each answer that Passed tells of, Learn or Cut has to
// tell the end.
func (l *OutputLength) Passed(from, to int) {
	if from == to {
		return
	}
	for ; l != nil; l = l.above {
		l.events++
		l.seen.pass(from, to)
	}
}

// Learn takes in the length of an answer that was known to have so many tokens by [OutputLength.Passed], 0
// where that was not called. Answers without a token are ignored.
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

// Cut takes in that an answer that was known to have so many tokens has so many, and that nobody will see it
// end by itself.
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

// pass notes that an answer that had so many tokens has so many now. Of the bucket that it is in it has
// passed a part: else those that are under way would count for nothing there beside the few that have ended,
// and those end first that are short.
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

// end notes that an answer that has so many tokens has ended.
func (s *seenAnswers) end(tokens int) {
	i := bucketOf(tokens)
	s.inside[i] -= passed(tokens, i)
	s.forget(i)
	s.ended[i]++
	s.tokens[i] += float64(tokens)
}

// cut notes that an answer that has so many tokens is not told of any more.
func (s *seenAnswers) cut(tokens int) {
	i := bucketOf(tokens)
	part := passed(tokens, i)
	s.inside[i] -= part
	s.beyond[i] += part
	s.news = true
}

// passed returns which part of a bucket an answer of so many tokens has behind it.
func passed(tokens, bucket int) float64 {
	from, to := bucketStart(bucket), bucketStart(bucket+1)
	return min(max(0, (float64(tokens)-from)/(to-from)), 1)
}

// forget makes what was seen of bucket i weigh a little less than what comes. Of other buckets nothing new
// is seen: answers that are cut at one token say nothing of those that are longer.
func (s *seenAnswers) forget(i int) {
	s.ended[i] *= lengthKeep
	s.tokens[i] *= lengthKeep
	s.beyond[i] *= lengthKeep
	s.news = true
}

// Rest returns how many tokens an answer that has generated some already is expected to add, and never more
// than limit (below zero: no limit).
func (l *OutputLength) Rest(generated, limit int) int {
	l = l.said()
	l.work()
	return l.spreads.likely.rest(generated, limit)
}

// Room is Rest as it may well be, for all that is known of such answers.
func (l *OutputLength) Room(generated, limit int) int {
	l = l.said()
	l.work()
	return max(l.spreads.likely.rest(generated, limit), l.spreads.cautious.rest(generated, limit))
}

// work works out what follows from what was seen, where that has changed.
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

// distribution is how answers are spread over the buckets.
type distribution struct {
	share  [lengthBuckets]float64     // of all answers, those in the bucket
	mean   [lengthBuckets]float64     // tokens of those
	longer [lengthBuckets + 1]float64 // share of answers in the bucket and above
}

// lomax returns the distribution of a mean whose tail grows by lengthTail of an answer's age.
func lomax(mean float64) *distribution {
	const shape = 1 + 1/lengthTail
	scale := mean / lengthTail
	longer := func(than float64) float64 { return math.Pow(1+than/scale, -shape) }
	// tokens is what all answers longer than that have, times their share.
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

// spread is a distribution with what is asked of them, all answers of a bucket taken to be as long as their
// mean.
type spread struct {
	distribution
	tokens [lengthBuckets + 1]float64 // of answers in the bucket and above, times their share
}

// work makes s what was seen, with prior beside it as if it were so many answers.
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

// rest returns the mean of what answers longer than generated add, each at most limit.
func (s *spread) rest(generated, limit int) int {
	have := float64(max(generated, 0))
	i := s.after(have)
	expected := have*lengthTail + 1
	if longer := s.longer[i]; longer > 0 {
		stop := lengthBuckets // and longer, where the limit cuts
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

// Known returns which share of what is said of lengths was seen, 0..1: the rest is guessed.
func (l *OutputLength) Known() float64 {
	seen := 0.0
	for _, ended := range l.seen.ended {
		seen += ended
	}
	return seen / (seen + lengthDoubt)
}

// Survive fills in the chance that an answer with so many tokens goes on for each number of steps more, each
// of so many tokens, or nearly so many, as long as answers may well be: lengths are known to a quarter of an
// octave.
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

// beyond returns which share of answers is longer than so many tokens.
func (s *spread) beyond(tokens float64) float64 {
	i := bucketOf(int(tokens))
	from, to := bucketStart(i), bucketStart(i+1)
	return s.longer[i+1] + s.share[i]*max(0, min((to-tokens)/(to-from), 1))
}

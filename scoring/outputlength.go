package scoring

import "math"

// OutputLength learns how long answers are and says how much is still to come of one that has some tokens
// already. [NewOutputLength] makes the first, [OutputLength.Under] one of a class of its answers, which
// believes the other until it has seen enough itself. Not safe for concurrent use, nor are those of one tree.
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

	ended  [lengthBuckets]float64 // answers whose length is in the bucket
	tokens [lengthBuckets]float64 // of those, together
	beyond [lengthBuckets]float64 // answers that reached the bucket and are longer
	belief float64                // how much the guess, or the class above, counts for, from 1 down
	guess  *distribution          // what is taken to be so before anything was seen; nil under another
	wide   *distribution          // the same, as long as it may well be
	events uint64                 // calls of Passed and Learn that told something
	news   bool                   // something that likely and cautious do not have

	likely, cautious spread // what follows from all that, as of the given version
	version          int    // counts up; 0: never worked out
	versionAbove     int    // of above
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

// Passed takes in that an answer under way, which was known to have so many tokens, has so many now. Where it
// has fewer, what was said of it is taken back.
func (l *OutputLength) Passed(from, to int) {
	a, b := bucketOf(from), bucketOf(to)
	if a == b {
		return
	}
	for ; l != nil; l = l.above {
		l.events++
		l.pass(a, b)
	}
}

// Learn takes in the length of an answer that was known to have so many tokens by [OutputLength.Passed], 0
// where that was not called. Answers without a token are ignored.
func (l *OutputLength) Learn(from, tokens int) {
	l.Passed(from, tokens)
	if tokens < 1 {
		return
	}
	tokens = min(tokens, lengthMax)
	at := bucketOf(tokens)
	for ; l != nil; l = l.above {
		l.events++
		l.forget(at)
		l.ended[at]++
		l.tokens[at] += float64(tokens)
		l.belief = max(l.belief*lengthKeep, lengthLeast)
	}
}

// pass notes that an answer went beyond the buckets from a to before b.
func (l *OutputLength) pass(a, b int) {
	for i := a; i < b; i++ {
		l.forget(i)
		l.beyond[i]++
	}
	for i := b; i < a; i++ {
		l.beyond[i] = max(0, l.beyond[i]-1)
		l.news = true
	}
}

// forget makes what was seen of bucket i weigh a little less than what comes. Of other buckets nothing new is
// seen: answers that are cut at one token say nothing of those that are longer.
func (l *OutputLength) forget(i int) {
	l.ended[i] *= lengthKeep
	l.tokens[i] *= lengthKeep
	l.beyond[i] *= lengthKeep
	l.news = true
}

// Rest returns how many tokens an answer that has generated some already is expected to add, and never more
// than limit (below zero: no limit).
func (l *OutputLength) Rest(generated, limit int) int {
	l = l.said()
	l.work()
	return l.likely.rest(generated, limit)
}

// Room is Rest as it may well be, for all that is known of such answers.
func (l *OutputLength) Room(generated, limit int) int {
	l = l.said()
	l.work()
	return max(l.likely.rest(generated, limit), l.cautious.rest(generated, limit))
}

// work works out what follows from what was seen, where that has changed.
func (l *OutputLength) work() {
	likely, cautious := l.guess, l.wide
	doubt, above := float64(lengthDoubt), 0
	if l.above != nil {
		l.above.work()
		likely, cautious = &l.above.likely.distribution, &l.above.cautious.distribution
		doubt, above = lengthBelief, l.above.version
	}
	if l.version > 0 && !l.news && above == l.versionAbove {
		return
	}
	l.version++
	l.versionAbove, l.news = above, false
	l.likely.work(l, likely, lengthBelief*l.belief)
	l.cautious.work(l, cautious, doubt*l.belief)
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

// work makes s what was seen by l, with prior beside it as if it were so many answers.
func (s *spread) work(l *OutputLength, prior *distribution, answers float64) {
	s.longer[0] = 1
	for i := range s.share {
		share, longer := answers*prior.share[i], answers*prior.longer[i+1]
		here, on := l.ended[i]+share, l.beyond[i]+longer
		if i == lengthBuckets-1 {
			on = 0
		}
		each := s.longer[i] / (here + on)
		s.share[i], s.longer[i+1] = each*here, each*on
		s.mean[i] = (l.tokens[i] + share*prior.mean[i]) / here
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
	for _, ended := range l.ended {
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
	now := l.cautious.beyond(float64(has))
	for k, more := range steps {
		if chance[k] = 0; now > 0 {
			chance[k] = l.cautious.beyond(float64(has)+more*step/quarterOctave) / now
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

// bucketOf returns the bucket of answers of so many tokens. Bucket i has those from 2^((i+1)/2) on, the first
// those of one token, or of none as yet.
func bucketOf(tokens int) int {
	if tokens < 2 {
		return 0
	}
	return min(int(2*math.Log2(float64(tokens)))-1, lengthBuckets-1)
}

func bucketStart(i int) float64 {
	if i == 0 {
		return 0
	}
	return math.Exp2(float64(i+1) / 2)
}

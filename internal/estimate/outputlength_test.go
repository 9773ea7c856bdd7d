package estimate

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// lengthTwin is [OutputLength] the slow way: it keeps every sample of each bucket, and computes each result
// anew.
type lengthTwin struct {
	above        *lengthTwin
	guess, doubt float64
	told         [lengthBuckets][]lengthSeen
	ended        int
	underWay     map[int]int // tokens of running answers, by their number
}

// lengthSeen is one answer that reached a bucket.
type lengthSeen struct {
	tokens float64 // of the answer, if it ended there
	ended  bool
	back   bool    // removes an answer that had passed the bucket
	part   float64 // share of the bucket that a cut answer had passed, 0 for other answers
}

func (w *lengthTwin) pass(from, to int) {
	for ; w != nil; w = w.above {
		for i := from; i < to; i++ {
			w.told[i] = append(w.told[i], lengthSeen{})
		}
		for i := to; i < from; i++ {
			w.told[i] = append(w.told[i], lengthSeen{back: true})
		}
	}
}

func (w *lengthTwin) end(at, tokens int) {
	for ; w != nil; w = w.above {
		w.told[at] = append(w.told[at], lengthSeen{tokens: float64(tokens), ended: true})
		w.ended++
	}
}

// seen adds up the samples of bucket i.
func (w *lengthTwin) seen(i int) (ended, tokens, beyond float64) {
	for _, s := range w.told[i] {
		switch {
		case s.back:
			beyond = max(0, beyond-1)
			continue
		case s.part > 0:
			beyond += s.part
			continue
		}
		ended *= lengthKeep
		tokens *= lengthKeep
		beyond *= lengthKeep
		if s.ended {
			ended, tokens = ended+1, tokens+s.tokens
		} else {
			beyond++
		}
	}
	for _, tokens := range w.underWay {
		if bucketOf(tokens) == i {
			from, to := bucketStart(i), bucketStart(i+1)
			beyond += max(0, float64(tokens)-from) / (to - from)
		}
	}
	return ended, tokens, beyond
}

// has records the number of tokens of an answer. Below zero: the answer has ended.
func (w *lengthTwin) has(answer, tokens int) {
	for ; w != nil; w = w.above {
		if w.underWay == nil {
			w.underWay = map[int]int{}
		}
		if w.underWay[answer] = tokens; tokens < 0 {
			delete(w.underWay, answer)
		}
	}
}

// cut records that an answer was cut off, and nothing more will be known about it.
func (w *lengthTwin) cut(tokens int) {
	i := bucketOf(tokens)
	from, to := bucketStart(i), bucketStart(i+1)
	part := max(0, float64(tokens)-from) / (to - from)
	for ; part > 0 && w != nil; w = w.above {
		w.told[i] = append(w.told[i], lengthSeen{part: part})
	}
}

// point is a share of all answers, of one length.
type point struct{ share, tokens float64 }

// points returns a length for each bucket.
func (w *lengthTwin) points(cautious bool) (all []point) {
	var prior []point
	answers := float64(lengthBelief)
	switch {
	case w.above != nil:
		prior = w.above.points(cautious)
	case cautious:
		prior, answers = guessedLength(w.guess*max(1, w.doubt)), lengthDoubt
	default:
		prior = guessedLength(w.guess)
	}
	for range w.ended {
		answers *= lengthKeep
	}
	left := 1.0
	for i := range prior {
		longer := 0.0
		for _, p := range prior[i+1:] {
			longer += p.share
		}
		ended, tokens, beyond := w.seen(i)
		here, on := ended+answers*prior[i].share, beyond+answers*longer
		mean := (tokens + answers*prior[i].share*prior[i].tokens) / here
		all = append(all, point{left * here / (here + on), mean})
		left *= on / (here + on)
	}
	return all
}

func guessedLength(mean float64) (all []point) {
	l := lomax(mean)
	for i := range l.share {
		all = append(all, point{l.share[i], l.mean[i]})
	}
	return all
}

func (w *lengthTwin) rest(cautious bool, generated, limit int) float64 {
	have := float64(max(generated, 0))
	weight, rest := 0.0, 0.0
	for _, p := range w.points(cautious) {
		if p.tokens <= have {
			continue
		}
		add := p.tokens - have
		if limit >= 0 {
			add = min(add, float64(limit))
		}
		weight += p.share
		rest += p.share * add
	}
	return rest / weight
}

func TestOutputLengthIsWhatItsTwinSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guess := rapid.IntRange(1, 3000).Draw(t, "guess")
		doubt := rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "doubt")
		pool := NewOutputLength(guess, doubt, 0)
		class := pool.Under()
		twinPool := &lengthTwin{guess: float64(guess), doubt: doubt}
		twinClass := &lengthTwin{above: twinPool}
		long := rapid.IntRange(1, 20_000)
		for answer := range rapid.IntRange(0, 60).Draw(t, "answers") {
			l, twin := class, twinClass
			if rapid.Bool().Draw(t, "of the pool") {
				l, twin = pool, twinPool
			}
			told := 0
			for range rapid.IntRange(0, 3).Draw(t, "reports") {
				to := long.Draw(t, "so far")
				l.Passed(told, to)
				twin.pass(bucketOf(told), bucketOf(to))
				twin.has(answer, to)
				told = to
			}
			tokens := long.Draw(t, "tokens")
			switch rapid.IntRange(0, 2).Draw(t, "goes on, ends, is cut") {
			case 1:
				l.Learn(told, tokens)
				twin.has(answer, -1)
				twin.pass(bucketOf(told), bucketOf(tokens))
				twin.end(bucketOf(tokens), tokens)
			case 2:
				l.Cut(told, tokens)
				twin.has(answer, -1)
				twin.pass(bucketOf(told), bucketOf(tokens))
				twin.cut(tokens)
			}
		}
		for range 4 {
			have, limit := rapid.IntRange(0, 30_000).Draw(t, "have"), rapid.IntRange(-1, 30_000).Draw(t, "limit")
			for name, of := range map[string]struct {
				l    *OutputLength
				twin *lengthTwin
			}{"pool": {pool, twinPool}, "class": {class, twinClass}} {
				likely, cautious := of.twin.rest(false, have, limit), of.twin.rest(true, have, limit)
				if got := float64(of.l.Rest(have, limit)); math.Abs(got-likely) > 1+likely/100 {
					t.Errorf("%s: %g more behind %d, at most %d; its twin says %g", name, got, have, limit, likely)
				}
				room := max(likely, cautious)
				if got := float64(of.l.Room(have, limit)); math.Abs(got-room) > 1+room/100 {
					t.Errorf("%s: room for %g behind %d, at most %d; its twin says %g", name, got, have, limit, room)
				}
			}
		}
	})
}

// The guess equals its own integral in small steps.
func TestTheGuessIsSpreadAsItIsSaid(t *testing.T) {
	for _, mean := range []float64{1, 256, 2560} {
		l := lomax(mean)
		alive := func(t float64) float64 { return math.Pow(1+t*lengthTail/mean, -1-1/lengthTail) }
		whole := 0.0
		for i := range lengthBuckets - 1 {
			from, to := bucketStart(i), bucketStart(i+1)
			const steps = 2000
			share, tokens := 0.0, 0.0
			for k := range steps {
				a, b := from+(to-from)*float64(k)/steps, from+(to-from)*float64(k+1)/steps
				share += alive(a) - alive(b)
				tokens += (alive(a) - alive(b)) * (a + b) / 2
			}
			near(t, "share", l.share[i], share, 1e-6)
			near(t, "mean", l.mean[i], tokens/share, 1e-3)
			near(t, "longer", l.longer[i], alive(from), 1e-9)
			whole += l.share[i] * l.mean[i]
		}
		last := lengthBuckets - 1
		near(t, "the whole mean", whole+l.share[last]*l.mean[last], mean, 1e-6)
	}
}

// An unknown answer may be ten times as long as expected. Each ended answer makes the expectation more
// certain.
func TestRoomIsKeptForAnswersThatNobodyKnows(t *testing.T) {
	l := NewOutputLength(256, 10, 0)
	near(t, "of nothing", float64(l.Room(0, -1)), 2560, 0.01)
	near(t, "by its mean", float64(l.Rest(0, -1)), 256, 0.01)
	if got := l.Room(0, 300); got > 300 {
		t.Errorf("room for %d tokens, where the client takes 300", got)
	}
	last := l.Room(0, -1)
	for n := 1; n <= 300; n++ {
		l.Learn(0, 256)
		room := l.Room(0, -1)
		if room > last {
			t.Fatalf("answer %d of 256 tokens raises the room from %d to %d", n, last, room)
		}
		if n == 10 && room > 512 {
			t.Errorf("after ten answers of 256 tokens room is kept for %d", room)
		}
		last = room
	}
	near(t, "of 300 answers", float64(last), 256, 0.03)
}

// If many running answers have the same length and a few have ended, then about as few are expected to end
// at each further step, although none has reached the next bucket.
func TestAnswersThatAreAllAsLongSoFar(t *testing.T) {
	l := NewOutputLength(256, 5, 0)
	for range 90 {
		l.Passed(0, 1800) // more than half of the way from 1,448 to 2,048
	}
	for range 5 {
		l.Learn(0, 1700)
	}
	var goOn [1]float64
	l.Survive(1800, 1, []float64{150}, goOn[:])
	if goOn[0] < 0.95 {
		t.Errorf("%.2f go on for 150 tokens more, where 5 of 95 ended in the last 350", goOn[0])
	}
	for range 80 {
		l.Learn(1800, 1900)
	}
	for range 10 {
		l.Cut(1800, 1900)
	}
	if l.Survive(1800, 1, []float64{150}, goOn[:]); goOn[0] > 0.6 {
		t.Errorf("%.2f go on for 150 tokens more, where nearly all ended", goOn[0])
	}
	if left := l.seen.inside[bucketOf(1800)]; math.Abs(left) > 1e-9 {
		t.Errorf("%g answers are said to be under way, and none is", left)
	}
}

// Short answers end first. Running answers show that longer answers exist.
func TestAnswersUnderWayCount(t *testing.T) {
	l := NewOutputLength(256, 1, 0)
	for range 90 {
		l.Passed(0, 2000)
	}
	for range 10 {
		l.Learn(0, 100)
	}
	if got := l.Rest(0, -1); got < 1600 {
		t.Errorf("one in ten had 100 tokens, the others 2,000 and more: %d are expected", got)
	}
	for range 90 {
		l.Learn(2000, 100) // the number of its tokens so far was an estimate
	}
	near(t, "taken back", float64(l.Rest(0, -1)), 100, 0.15)
}

// A class has its model's lengths until it has samples of its own, and soon follows these samples.
func TestAClassFollowsItsModelUntilItKnows(t *testing.T) {
	model := NewOutputLength(256, 10, 0)
	chats, summaries := model.Under(), model.Under()
	for range 500 {
		chats.Learn(0, 600)
	}
	near(t, "of a class that is new", float64(summaries.Rest(0, -1)), float64(model.Rest(0, -1)), 0.01)
	near(t, "its room", float64(summaries.Room(0, -1)), float64(model.Room(0, -1)), 0.01)
	for range 10 {
		summaries.Learn(0, 50)
	}
	near(t, "after ten answers", float64(summaries.Rest(0, -1)), 325, 0.1)
	for range 200 {
		summaries.Learn(0, 50)
	}
	near(t, "after 200 more", float64(summaries.Rest(0, -1)), 70, 0.15)
	near(t, "another class", float64(chats.Rest(0, -1)), 600, 0.02)
}

// A class follows all answers as long as all answers are of this class. Then it follows its own samples.
func TestAPartIsTheWholeUntilThereIsAnother(t *testing.T) {
	whole := NewOutputLength(256, 5, 0)
	one := whole.Part()
	for range 100 {
		one.Learn(0, 600)
		if one.Rest(0, -1) != whole.Rest(0, -1) || one.Room(0, -1) != whole.Room(0, -1) {
			t.Fatalf("%d and %d are expected, and %d and %d of the whole", one.Rest(0, -1), one.Room(0, -1),
				whole.Rest(0, -1), whole.Room(0, -1))
		}
	}
	other := whole.Part()
	if got := other.Rest(0, -1); got != whole.Rest(0, -1) {
		t.Errorf("of another that saw nothing %d are expected, and %d of the whole", got, whole.Rest(0, -1))
	}
	for range 100 {
		other.Learn(0, 60)
	}
	near(t, "the one", float64(one.Rest(0, -1)), 590, 0.05)
	near(t, "the other", float64(other.Rest(0, -1)), 90, 0.15)
}

func BenchmarkOutputLength(b *testing.B) {
	model := NewOutputLength(256, 10, 0)
	class := model.Under().Under()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		class.Learn(0, 1+n%3000)
		n += class.Rest(0, -1) + class.Room(0, 4096)
	}
}

// The bucket equals the logarithm, which takes ten times as long to compute.
func TestBucketsAreHalvesOfOctaves(t *testing.T) {
	slow := func(tokens int) int {
		if tokens < 2 {
			return 0
		}
		return min(int(2*math.Log2(float64(tokens)))-1, lengthBuckets-1)
	}
	for tokens := range 1 << 20 {
		if got, want := bucketOf(tokens), slow(tokens); got != want {
			t.Fatalf("%d tokens are in bucket %d, want %d", tokens, got, want)
		}
	}
	for e := range 62 {
		for _, tokens := range []int{1<<e - 1, 1 << e, 1<<e + 1, int(float64(int(1)<<e) * math.Sqrt2)} {
			if got, want := bucketOf(tokens), slow(tokens); got != want {
				t.Errorf("%d tokens are in bucket %d, want %d", tokens, got, want)
			}
		}
	}
}

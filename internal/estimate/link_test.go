package estimate

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at returns a sample of a link.
func (r Range) at(now time.Time) Sample { return Sample{Of: LinkTime, At: now, Range: r} }

// The configured speed may be wrong by a factor of a hundred. After three transfers the prediction is within
// a factor of two, and the first transfer makes most of the change. Unmeasured links of the same kind follow,
// by less.
func TestThreeTransfersTell(t *testing.T) {
	for _, wrong := range []float64{1. / 100, 1. / 10, 1. / 4, 3, 10, 100} {
		var k Kind
		var l Link
		const told = 1 / 4e9
		truth := told * wrong
		off := func(l *Link) float64 { return math.Abs(math.Log(k.PerByte(l, told, start) / truth)) }
		before := off(&l)
		k.Learn(&l, told, Exactly(truth).at(start))
		if off(&l) > before/4 {
			t.Errorf("wrong by %g: off by a factor of %.2f after one transfer", wrong, math.Exp(off(&l)))
		}
		if other := off(nil); other > before*0.6 || other < before*0.2 {
			t.Errorf("wrong by %g: others of the kind are off by a factor of %.2f after one transfer",
				wrong, math.Exp(other))
		}
		for range 2 {
			k.Learn(&l, told, Exactly(truth).at(start))
		}
		if off(&l) > math.Ln2 {
			t.Errorf("wrong by %g: off by a factor of %.2f after three transfers", wrong, math.Exp(off(&l)))
		}
	}
}

// After three transfers, a well measured link is known to have become slow or fast.
func TestALinkThatChangedIsLearned(t *testing.T) {
	for _, times := range []float64{1. / 100, 1. / 10, 3, 10, 100} {
		var k Kind
		var l Link
		for range 100 {
			k.Learn(&l, 1/4e9, Exactly(1/2e9).at(start))
		}
		for range 3 {
			k.Learn(&l, 1/4e9, Exactly(times/2e9).at(start))
		}
		if got := k.PerByte(&l, 1/4e9, start) * 2e9 / times; got > 2 || got < 0.5 {
			t.Errorf("%g times as slow by now: off by a factor of %.2f after three transfers", times, got)
		}
	}
}

// One unusual link does not change the estimate of the other links of its kind.
func TestOneOfAKindIsNotTheKind(t *testing.T) {
	var k Kind
	links := make([]Link, 6)
	for range 5 {
		for i := range links {
			truth := 1 / 40e9
			if i == 3 {
				truth = 1 / 0.4e9
			}
			k.Learn(&links[i], 1/40e9, Exactly(truth).at(start))
		}
	}
	if got := k.PerByte(nil, 1/40e9, start) * 40e9; got > 1.01 || got < 0.99 {
		t.Errorf("five of six are as they are said to be, and the next is taken for %.2f times as slow", got)
	}
	if got := k.PerByte(&links[3], 1/40e9, start) * 0.4e9; got > 2 || got < 0.5 {
		t.Errorf("the slow one is off by a factor of %.2f", got)
	}
}

// A sample moves the estimate only as far as its bounds say.
func TestOpenSamplesMoveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k Kind
		var l Link
		truth := 1 / rapid.Float64Range(0.01e9, 200e9).Draw(t, "speed")
		for range 20 {
			k.Learn(&l, 1/40e9, Exactly(truth).at(start))
		}
		was, _ := l.State()
		believed := was.PerByte
		for range rapid.IntRange(1, 50).Draw(t, "samples") {
			low := believed * rapid.Float64Range(0, 1).Draw(t, "low")
			high := believed * rapid.Float64Range(1, 1e6).Draw(t, "high")
			k.Learn(&l, 1/40e9, Range{low, high}.at(start))
		}
		if is, _ := l.State(); math.Abs(is.PerByte/believed-1) > 1e-9 {
			t.Errorf("%g s a byte by now, and %g before", is.PerByte, believed)
		}
	})
}

// A slow link without transfers is believed to be faster as time passes, until a transfer tries it. Other
// links of the kind that are in use do not become faster by this.
func TestNobodyIsSlowForEver(t *testing.T) {
	var k Kind
	var slow, well Link
	const told = 1 / 40e9
	use := func(now time.Time) { k.Learn(&well, told, Exactly(told).at(now)) }
	for range 10 {
		use(start)
		k.Learn(&slow, told, Exactly(told*100).at(start))
	}
	before := k.PerByte(&slow, told, start)
	last := before
	for s := 20; s <= 200; s += 20 {
		now := start.Add(time.Duration(s) * time.Second)
		use(now)
		got := k.PerByte(&slow, told, now)
		if got >= last {
			t.Errorf("after %d s it is taken for %g s a byte, and %g before", s, got, last)
		}
		last = got
	}
	if last > told*2 {
		t.Errorf("after 200 s it is taken for %.1f times as slow as the others", last/told)
	}
	now := start.Add(200 * time.Second)
	k.Touch(&slow, now)
	if got := k.PerByte(&slow, told, now); math.Abs(got/before-1) > 1e-9 {
		t.Errorf("somebody tries it, and the next takes it for %g s a byte, not %g", got, before)
	}
	later := now.Add(5 * time.Minute) // without transfers
	if got := k.PerByte(&well, told, later); got > told/5 {
		t.Errorf("over the whole kind nothing came for minutes: %g s a byte, as if that were known", got)
	}
	k.Touch(nil, later)
	if got := k.PerByte(&well, told, later); math.Abs(got/told-1) > 1e-9 {
		t.Errorf("somebody tries one of them: %g s a byte, not %g", got, told)
	}
}

// twin is a slow Kind: it keeps all samples, and computes everything anew.
type twin struct {
	told    float64
	history []heard
}

type heard struct {
	link int
	s    Range
}

// own replays the samples of a link, up to the n-th sample of all links.
func (w *twin) own(link, n int) (log float64, samples int) {
	for at := range n {
		h := w.history[at]
		if h.link != link || h.s.Low > h.s.High {
			continue
		}
		gain := 0.5
		if samples == 0 {
			log, gain = w.common(at), 0.9
		}
		switch low, high := math.Log(h.s.Low), math.Log(h.s.High); {
		case log < low:
			log += gain * (low - log)
		case log > high:
			log += gain * (high - log)
		}
		samples++
	}
	return log, samples
}

// common is the median of the estimates of eight links: the links with the latest of the first n samples.
func (w *twin) common(n int) float64 {
	var logs []float64
	seen := map[int]bool{}
	for at := n - 1; at >= 0 && len(logs) < 8; at-- {
		if h := w.history[at]; !seen[h.link] && h.s.Low <= h.s.High {
			seen[h.link] = true
			log, _ := w.own(h.link, n)
			logs = append(logs, log)
		}
	}
	if len(logs) < 3 {
		logs = append(logs, math.Log(w.told))
	}
	slices.Sort(logs)
	return (logs[(len(logs)-1)/2] + logs[len(logs)/2]) / 2
}

// measured is the number of links with samples.
func (w *twin) measured() int {
	seen := map[int]bool{}
	for _, h := range w.history {
		if h.s.Low <= h.s.High {
			seen[h.link] = true
		}
	}
	return len(seen)
}

func (w *twin) perByte(link int) float64 {
	n := len(w.history)
	common := w.common(n)
	log, samples := w.own(link, n)
	if samples > 0 && (w.measured() < 3 || math.Abs(log-common) > math.Log(1.5)) {
		return math.Exp(log)
	}
	return math.Exp(common)
}

func TestKindIsItsSlowTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		told := 1 / rapid.Float64Range(0.1e9, 100e9).Draw(t, "told")
		slow := twin{told: told}
		var k Kind
		links := make([]Link, 11)
		for range rapid.IntRange(1, 25).Draw(t, "samples") {
			i := rapid.IntRange(0, len(links)-1).Draw(t, "link")
			perByte := func(name string) float64 {
				return math.Pow(10, -rapid.Float64Range(6.1, 11.5).Draw(t, name))
			}
			s := Range{perByte("low"), perByte("high")}
			k.Learn(&links[i], told, s.at(start))
			slow.history = append(slow.history, heard{i, s})
			for j := range links {
				if got, want := k.PerByte(&links[j], told, start), slow.perByte(j); math.Abs(got/want-1) > 1e-9 {
					t.Fatalf("link %d: %g s a byte, its twin says %g", j, got, want)
				}
			}
		}
	})
}

// After any measurements and any restored state, the believed value is a valid speed.
func TestWhateverIsMeasuredIsASpeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64Range(0, 1),
			rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), 1e300}))
		var k Kind
		var l Link
		now := start
		k.Restore(&l, 1/40e9, number.Draw(t, "restored"), number.Draw(t, "believed"), now)
		for range rapid.IntRange(0, 20).Draw(t, "samples") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1e12).Draw(t, "later")))
			k.Learn(&l, 1/40e9, Range{number.Draw(t, "low"), number.Draw(t, "high")}.at(now))
			e := k.Estimate(&l, 1/40e9, now)
			if !(e.Value >= fastest/2 && e.Value <= slowest*2) || !(e.Error >= 1 && e.Error <= guessed*1.001) {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// The next process begins with the measurements from before the restart. The older they are, the less they
// count.
func TestLinksOutliveAProcess(t *testing.T) {
	var before, after Kind
	var was, is Link
	if _, measured := was.State(); measured {
		t.Error("a link of which nothing was measured has a state")
	}
	for range 5 {
		before.Learn(&was, 1/40e9, Exactly(1/2e9).at(start))
	}
	s, _ := was.State()
	if !after.Restore(&is, 1/40e9, s.PerByte, 1, start) || after.Restore(&is, 1/40e9, s.PerByte, 1, start) {
		t.Fatal("taken not once")
	}
	if got := after.PerByte(&is, 1/40e9, start) / s.PerByte; got < 0.99 || got > 1.01 {
		t.Errorf("restored: %.2f times as slow as before", got)
	}
	var old Link
	after.Restore(&old, 1/40e9, 1/0.4e9, 0.5, start)
	if got := after.PerByte(&old, 1/40e9, start) * 4e9; got < 0.99 || got > 1.01 {
		t.Errorf("of a hundredfold half is believed: %.2f times as slow as tenfold", got)
	}
}

package grid

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// windowsOf makes windows of ten requests, each with the given number of good answers.
func windowsOf(good ...int) Windows {
	var w Windows
	for _, n := range good {
		w.Asked = append(w.Asked, 10)
		w.Usual = append(w.Usual, n)
		w.Tight = append(w.Tight, 0)
	}
	return w
}

// If one side leads by the same amount in every window, the difference has no uncertainty, even if some
// windows were bad for both sides. If only one side has bad windows, the difference is uncertain.
func TestDifferenceOfBlocks(t *testing.T) {
	var a, b []int
	for i := range 48 {
		bad := i / 12 % 2 * 5
		a = append(a, 9-bad)
		b = append(b, 8-bad)
	}
	in, known := difference([]pairing{{windowsOf(a...), windowsOf(b...)}})
	if !known || math.Abs(in.Low-0.1) > 1e-9 || math.Abs(in.High-0.1) > 1e-9 {
		t.Errorf("one side leads by one in ten everywhere: %+v", in)
	}
	even := make([]int, 48)
	for i := range even {
		even[i] = 5
	}
	if in, _ := difference([]pairing{{windowsOf(a...), windowsOf(even...)}}); in.High-in.Low < 0.05 {
		t.Errorf("one side leads half of the time: %+v", in)
	}
	if _, known := difference(nil); known {
		t.Error("a difference is known without any windows")
	}
}

// Bad periods last longer than a window. Drawing single windows would make the interval narrower than it
// really is.
func TestBlocksAreWiderThanSingleWindows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	long, mixed := make([]int, 48), make([]int, 48)
	for i := range long {
		long[i] = 10 * (i / 6 % 2)
		mixed[i] = long[i]
	}
	rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	none := windowsOf(make([]int, 48)...)
	width := func(xs []int) float64 {
		in, _ := difference([]pairing{{windowsOf(xs...), none}})
		return in.High - in.Low
	}
	if width(long) < 1.3*width(mixed) {
		t.Errorf("bad windows in a row: %v wide, bad windows spread out: %v", width(long), width(mixed))
	}
}

// When one play of three decides, nothing is certain, even if the windows of each play are alike.
func TestPlaysAreDrawnToo(t *testing.T) {
	same := make([]int, 48)
	worse := make([]int, 48)
	for i := range same {
		same[i] = 9
		worse[i] = 4
	}
	even := pairing{windowsOf(same...), windowsOf(same...)}
	lost := pairing{windowsOf(worse...), windowsOf(same...)}
	if in, _ := difference([]pairing{lost, even, even}); in.High < 0 || in.Low > -0.3 {
		t.Errorf("one play of three was lost: %+v", in)
	}
	if in, _ := difference([]pairing{lost, lost, lost}); in.High > -0.49 {
		t.Errorf("all three plays were lost: %+v", in)
	}
}

// The figures are medians. A collapsed play is counted, even though it would dominate a mean.
func TestMediansByHand(t *testing.T) {
	l := line(0.7, 0.95, 0.92, 0.6, false)
	l.Again = []Again{
		{Ours: Figures{Usual: 0.1, TTFT: 300}, Rival: Figures{Usual: 0.93}, Unsplit: Figures{Usual: 0.4}},
		{Ours: Figures{Usual: 0.94, TTFT: 1.3}, Rival: Figures{Usual: 0.2}, Unsplit: Figures{Usual: 0.3}},
	}
	l.Again[0].Capacity = Capacities{Ours: 1, Rival: 4, Unsplit: 0}
	l.Again[1].Capacity = Capacities{Ours: 3, Rival: 2, Unsplit: 3}
	if l.Good(Ours) != 0.94 || l.Good(Rival) != 0.92 || l.TTFT(Ours) != 1.3 || l.Good(Unsplit) != 0.4 {
		t.Errorf("good %v, %v, %v; TTFT %v", l.Good(Ours), l.Good(Rival), l.Good(Unsplit), l.TTFT(Ours))
	}
	if l.Collapsed(Ours) != 1 || l.Collapsed(Rival) != 1 || l.Collapsed(Unsplit) != 2 || l.Lost() {
		t.Errorf("collapsed %d, %d, %d", l.Collapsed(Ours), l.Collapsed(Rival), l.Collapsed(Unsplit))
	}
	if r := l.Ratio(); math.Abs(r-0.95/0.92) > 1e-9 {
		t.Errorf("the median ratio of 1.03, 0.25 and 1.5 is %v", r)
	}
	if got := []float64{over(0, 0), over(1, 0), over(1, 2), over(30, 1)}; got[0] != 1 || got[1] != 10 ||
		got[2] != 0.5 || got[3] != 10 {
		t.Errorf("ratios %v", got)
	}
}

// A cell is lost for certain when the blocks of windows show it.
func TestLostSurely(t *testing.T) {
	l := line(0.7, 0.8, 0.9, 0.7, false)
	if l.Lost(); l.LostSurely() {
		t.Error("the loss is certain, but no windows were kept")
	}
	a, b := make([]int, 48), make([]int, 48)
	for i := range a {
		a[i] = 8
		b[i] = 9
	}
	l.Windows = &Trio{Ours: windowsOf(a...), Rival: windowsOf(b...)}
	if !l.LostSurely() {
		t.Error("one good answer of ten less in each window is not a certain loss")
	}
	a[0], a[5] = 0, 100
	l.Windows = &Trio{Ours: windowsOf(a...), Rival: windowsOf(b...)}
	if l.LostSurely() {
		t.Error("a single window decides, but the loss is certain")
	}
}

// A play with another seed uses another part of the recording if the recording is long enough.
func TestRecordingWindows(t *testing.T) {
	for number, want := range map[int]time.Duration{1: 0, 2: 8, 3: 4, 4: 2, 5: 6, 6: 8} {
		if got := recordingWindow(number, 8); got != want {
			t.Errorf("play %d begins %v later, want %v", number, got, want)
		}
	}
	if recordingWindow(2, 0) != 0 || recordingWindow(2, -5) != 0 {
		t.Error("the window is outside the recording")
	}
}

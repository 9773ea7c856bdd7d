package trace

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Window is the load of one client of ServeGen in ten minutes: its rate of requests, and their distribution.
type Window struct {
	Client int
	Start  time.Duration
	Rate   float64 // requests a second
	CV     float64 // of the gaps between them
	Family Family
	Shape  float64
	Scale  float64 // s, as fitted upstream; gaps are rescaled to Rate
}

// WindowLength is the length of a [Window].
const WindowLength = 10 * time.Minute

// Family is a distribution of gaps.
type Family uint8

// The families of ServeGen.
const (
	Gamma Family = iota
	Weibull
)

var arrivalsHeader = []byte("client,window_start_s,")

// Arrivals reads ServeGen's arrival rates that lie within from and to, 0 for the end.
func Arrivals(r io.Reader, name string, from, to time.Duration) ([]Window, error) {
	in, err := unzip(r, name)
	if err != nil {
		return nil, err
	}
	l := &lines{in: in, name: name}
	var all []Window
	for {
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if l.n == 1 && bytes.HasPrefix(line, arrivalsHeader) {
			continue
		}
		w, err := l.window(line)
		if err != nil {
			return nil, err
		}
		if w.Start >= from && (to == 0 || w.Start < to) {
			all = append(all, w)
		}
	}
}

func (l *lines) window(line []byte) (Window, error) {
	f, err := l.row(line, 7)
	if err != nil {
		return Window{}, err
	}
	var x [7]float64
	for i, name := range [...]string{"client", "window_start_s", "rate_rps", "cv", "", "p1", "p2"} {
		if name == "" {
			continue
		}
		if x[i], err = l.number(name, f[i]); err != nil {
			return Window{}, err
		}
	}
	start, err := l.seconds("window_start_s", x[1])
	if err != nil {
		return Window{}, err
	}
	w := Window{Client: int(x[0]), Start: start, Rate: x[2], CV: x[3], Shape: x[5], Scale: x[6]}
	switch f[4] {
	case "Gamma":
		w.Family = Gamma
	case "Weibull":
		w.Family = Weibull
	default:
		return Window{}, l.wrong("family", "%q is neither Gamma nor Weibull", f[4])
	}
	if w.Shape == 0 || w.Rate > 1e5 {
		return Window{}, l.wrong("p1", "shape %v, %v requests a second", w.Shape, w.Rate)
	}
	return w, nil
}

// Arrival is one request of one client.
type Arrival struct {
	At     time.Duration
	Client int
}

// Draw draws the arrivals of ws, in order. The rate of all is multiplied by scale.
func Draw(ws []Window, scale float64, rnd *rand.Rand) []Arrival {
	var all []Arrival
	for i := range ws {
		w := &ws[i]
		rate := w.Rate * scale
		if !(rate > 0) {
			continue
		}
		mean := w.meanGap()
		t := w.gap(rnd) / mean / rate * rnd.Float64() // the window begins somewhere in a gap
		for t < WindowLength.Seconds() {
			all = append(all, Arrival{w.Start + time.Duration(t*1e9), w.Client})
			t += max(w.gap(rnd)/mean/rate, 1e-6)
		}
	}
	slices.SortStableFunc(all, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return all
}

// meanGap is the mean of [Window.gap].
func (w *Window) meanGap() float64 {
	if w.Family == Gamma {
		return w.Shape
	}
	return math.Gamma(1 + 1/w.Shape)
}

// gap draws a gap of scale 1.
func (w *Window) gap(rnd *rand.Rand) float64 {
	if w.Family == Gamma {
		return gamma(w.Shape, rnd)
	}
	return math.Pow(rnd.ExpFloat64(), 1/w.Shape)
}

// gamma draws from the gamma distribution of scale 1, by Marsaglia and Tsang (2000).
func gamma(shape float64, rnd *rand.Rand) float64 {
	if shape < 1 {
		return gamma(shape+1, rnd) * math.Pow(rnd.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rnd.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-rnd.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

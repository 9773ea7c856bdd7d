package core

// FitCost returns the formula that best fits the measured seconds of steps. Errors are relative to each
// step's seconds. Prefill-only steps give T0, A and B; decode-only steps give D0, D1 and D2. Both kinds are
// needed, in at least three sizes each. Mixed steps are ignored.
func FitCost(steps []Batch, seconds []float64) Cost {
	var prefill, decode fit
	for i := range steps {
		b := &steps[i]
		w := b.work()
		switch {
		case w.decode == 0:
			prefill.add([3]float64{1, float64(w.prefill), w.attention}, seconds[i])
		case w.prefill == 0:
			decode.add([3]float64{1, float64(w.decode), float64(w.context)}, seconds[i])
		}
	}
	p, d := prefill.solve(), decode.solve()
	return Cost{T0: p[0], A: p[1], B: p[2], D0: d[0], D1: d[1], D2: d[2]}
}

// Seconds returns the time of a step.
func (c *Cost) Seconds(b *Batch) float64 { return c.of(b.work()).Seconds() }

func (b *Batch) work() (w work) {
	for _, c := range b.Chunks {
		w.prefill += c.New
		w.attention += float64(c.New) * (float64(c.Computed) + float64(c.New)/2)
	}
	w.decode, w.context = b.Decode, b.Context
	return w
}

// fit is a least-squares fit of three numbers with relative errors.
type fit struct{ a [3][4]float64 }

// LeastSquares returns the x that minimises the relative errors of rows*x against y. At least three rows must
// be independent, and no y may be 0.
func LeastSquares(rows [][3]float64, y []float64) [3]float64 {
	var f fit
	for i, row := range rows {
		f.add(row, y[i])
	}
	return f.solve()
}

func (f *fit) add(row [3]float64, y float64) {
	for i := range row {
		for j := range row {
			f.a[i][j] += row[i] * row[j] / (y * y)
		}
		f.a[i][3] += row[i] / y
	}
}

// solve is Gauss-Jordan elimination. Sums of squares need no pivoting.
func (f *fit) solve() (x [3]float64) {
	a := f.a
	for i := range x {
		for k := range x {
			if k == i {
				continue
			}
			by := a[k][i] / a[i][i]
			for j := range a[k] {
				a[k][j] -= by * a[i][j]
			}
		}
	}
	for i := range x {
		x[i] = a[i][3] / a[i][i]
	}
	return x
}

package core

// FitCost returns the formula that comes nearest to the seconds that steps took. Each error counts as a share
// of its step's seconds. Steps that only compute prompts give the prefill part, and steps that only decode
// give the other part. Both kinds are needed, in at least three sizes each. Steps that do both are not looked
// at.
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

// Seconds is the time of a step.
func (c *Cost) Seconds(b *Batch) float64 { return c.of(b.work()).Seconds() }

func (b *Batch) work() (w work) {
	for _, c := range b.Chunks {
		w.prefill += c.New
		w.attention += float64(c.New) * (float64(c.Computed) + float64(c.New)/2)
	}
	w.decode, w.context = b.Decode, b.Context
	return w
}

// fit is a least-squares fit of three numbers, each equation weighed by what it comes to.
type fit struct{ a [3][4]float64 }

// LeastSquares returns x for which the rows times x come nearest to y. Each error counts as a share of its y.
// At least three rows must be independent, and no y may be 0.
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

// solve is Gauss and Jordan's way; sums of squares need no pivot.
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

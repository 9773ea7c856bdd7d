package kernels

import (
	"maps"
	"slices"
	"sort"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// curve is a piecewise linear function through measured points. It continues straight beyond the last point.
type curve struct{ x, y []float64 }

// newCurve sorts the points.
func newCurve(points map[float64]float64) curve {
	c := curve{x: slices.Sorted(maps.Keys(points))}
	for _, x := range c.x {
		c.y = append(c.y, points[x])
	}
	return c
}

func (c *curve) at(x float64) float64 {
	i, part := place(c.x, x)
	if len(c.x) == 1 {
		return c.y[0]
	}
	return c.y[i] + part*(c.y[i+1]-c.y[i])
}

// place returns the interval of axis that contains x, and how far into it x lies. Below the first point, part
// is 0. Beyond the last point, part is more than 1.
func place(axis []float64, x float64) (i int, part float64) {
	if len(axis) < 2 {
		return 0, 0
	}
	i = min(max(sort.SearchFloat64s(axis, x)-1, 0), len(axis)-2)
	return i, max(0, (x-axis[i])/(axis[i+1]-axis[i]))
}

// grid is a curve for each value of the first number. The rows may have different points.
type grid []row

type row struct {
	x float64
	curve
}

func newGrid(points map[float64]map[float64]float64) grid {
	var g grid
	for _, x := range slices.Sorted(maps.Keys(points)) {
		g = append(g, row{x, newCurve(points[x])})
	}
	return g
}

func (g grid) at(x, y float64) float64 {
	return g.between(x, func(r *row) float64 { return r.at(y) })
}

// capped is like at, but uses no y beyond a row's last point: fewer tokens reach fewer experts.
func (g grid) capped(x, y float64) float64 {
	return g.between(x, func(r *row) float64 { return r.at(min(y, r.curve.x[len(r.curve.x)-1])) })
}

func (g grid) between(x float64, value func(*row) float64) float64 {
	if len(g) == 1 {
		return value(&g[0])
	}
	i := min(max(sort.Search(len(g), func(i int) bool { return g[i].x >= x })-1, 0), len(g)-2)
	part := max(0, (x-g[i].x)/(g[i+1].x-g[i].x))
	a, b := value(&g[i]), value(&g[i+1])
	return a + part*(b-a)
}

// attention is the time of one layer's attention. Three cases are measured: a chunk of a prompt behind some
// KV, decoding sequences with some KV each, and both in one launch. One launch for both takes longer than the
// sum of two launches.
type attention struct {
	chunk  grid // by tokens of the chunk and KV before the chunk
	decode grid // by sequences and KV per sequence
	mixed  box  // by all four numbers
}

func (a *attention) at(b *core.Batch) float64 {
	decode := 0.0
	n, each := float64(b.Decode), 0.0
	if b.Decode > 0 {
		each = float64(b.Context) / n
		decode = a.decode.at(n, each)
	}
	if len(b.Chunks) == 0 {
		return decode
	}
	var sum, tokens, before float64
	for _, c := range b.Chunks {
		u, k := float64(c.New), float64(c.Computed)
		sum += a.chunk.at(u, k)
		tokens += u
		before += u * k
	}
	if b.Decode == 0 {
		return sum
	}
	before /= tokens
	// One launch over all chunks as one chunk, minus the surplus attention of one long chunk over several
	// short ones.
	whole := a.mixed.at([4]float64{tokens, before, n, each}) + sum - a.chunk.at(tokens, before)
	return max(whole, decode, sum)
}

// box is a complete grid of four axes.
type box struct {
	axis [4][]float64
	y    []float64
}

// newBox extracts a complete grid from the points. Again and again, it drops the axis value that lacks most
// points.
func newBox(points map[[4]float64]float64) box {
	for {
		b, counts := axesOf(points)
		worst := 1.0
		at := -1
		value := 0.0
		all := len(b.axis[0]) * len(b.axis[1]) * len(b.axis[2]) * len(b.axis[3])
		for d := range b.axis {
			for _, x := range b.axis[d] {
				if full := float64(counts[d][x]*len(b.axis[d])) / float64(all); full < worst {
					worst = full
					at = d
					value = x
				}
			}
		}
		if at < 0 {
			b.fill(points)
			return b
		}
		maps.DeleteFunc(points, func(p [4]float64, _ float64) bool { return p[at] == value })
	}
}

// axesOf returns a box without times, and the number of points of each axis value.
func axesOf(points map[[4]float64]float64) (b box, counts [4]map[float64]int) {
	for d := range counts {
		counts[d] = map[float64]int{}
		for p := range points {
			counts[d][p[d]]++
		}
		b.axis[d] = slices.Sorted(maps.Keys(counts[d]))
	}
	return b, counts
}

// fill stores the points of a complete grid.
func (b *box) fill(points map[[4]float64]float64) {
	for _, x0 := range b.axis[0] {
		for _, x1 := range b.axis[1] {
			for _, x2 := range b.axis[2] {
				for _, x3 := range b.axis[3] {
					b.y = append(b.y, points[[4]float64{x0, x1, x2, x3}])
				}
			}
		}
	}
}

// at interpolates between the sixteen corners around p.
func (b *box) at(p [4]float64) float64 {
	var i [4]int
	var part [4]float64
	for d := range p {
		i[d], part[d] = place(b.axis[d], p[d])
	}
	sum := 0.0
	for corner := range 16 {
		weight, at := 1.0, 0
		for d := range p {
			up := corner >> d & 1
			if up == 1 {
				weight *= part[d]
			} else {
				weight *= 1 - part[d]
			}
			at = at*len(b.axis[d]) + min(i[d]+up, len(b.axis[d])-1)
		}
		if weight != 0 {
			sum += weight * b.y[at]
		}
	}
	return sum
}

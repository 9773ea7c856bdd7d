package scoring

import (
	"math"
	"slices"
)

// PairRates are the seconds per byte between every prefill replica and every decode replica of the pools.
type PairRates struct {
	PerByte []float64 // seconds, at row*Stride+column; below zero for an impossible pair
	Stride  int
	Fastest []float64 // the least of the possible pairs in each column; +Inf without one
	Whole   []bool    // by row: every pair in it is possible
}

// Reset empties r for pairs of so many columns.
func (r *PairRates) Reset(stride int) {
	r.PerByte = r.PerByte[:0]
	r.Whole = r.Whole[:0]
	r.Stride = stride
	r.Fastest = slices.Repeat([]float64{math.Inf(1)}, stride)
}

// Add appends the rate of the next pair, row by row.
func (r *PairRates) Add(perByte float64) {
	at := len(r.PerByte)
	if at%r.Stride == 0 {
		r.Whole = append(r.Whole, true)
	}
	r.PerByte = append(r.PerByte, perByte)
	if perByte < 0 {
		r.Whole[at/r.Stride] = false
		return
	}
	r.Fastest[at%r.Stride] = min(r.Fastest[at%r.Stride], perByte)
}

// Set changes the rate of the pair at an index. The pair must be possible.
func (r *PairRates) Set(at int, perByte float64) {
	r.PerByte[at] = perByte
	fastest := math.Inf(1)
	for i := at % r.Stride; i < len(r.PerByte); i += r.Stride {
		if r.PerByte[i] >= 0 {
			fastest = min(fastest, r.PerByte[i])
		}
	}
	r.Fastest[at%r.Stride] = fastest
}

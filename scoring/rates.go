package scoring

import (
	"math"
	"slices"
)

// PairRates are the seconds per byte between every prefill replica and every decode replica of the pools.
type PairRates struct {
	PerByte []float64 // seconds, at row*Stride+column; below zero for an impossible pair
	Stride  int
	Columns []RateRange // of the possible pairs in each column
	Whole   []bool      // by row: every pair in it is possible
}

// RateRange is the least and the most of some rates; without a rate the least is +Inf and the most 0.
type RateRange struct{ Least, Most float64 }

func (r *RateRange) add(perByte float64) {
	if perByte >= 0 {
		r.Least, r.Most = min(r.Least, perByte), max(r.Most, perByte)
	}
}

var noRates = RateRange{Least: math.Inf(1)}

// Reset empties r for pairs of so many columns.
func (r *PairRates) Reset(stride int) {
	r.PerByte = r.PerByte[:0]
	r.Whole = r.Whole[:0]
	r.Stride = stride
	r.Columns = slices.Repeat([]RateRange{noRates}, stride)
}

// Add appends the rate of the next pair, row by row.
func (r *PairRates) Add(perByte float64) {
	at := len(r.PerByte)
	if at%r.Stride == 0 {
		r.Whole = append(r.Whole, true)
	}
	r.PerByte = append(r.PerByte, perByte)
	r.Columns[at%r.Stride].add(perByte)
	if perByte < 0 {
		r.Whole[at/r.Stride] = false
	}
}

// Set changes the rate of the pair at an index. The pair must be possible.
func (r *PairRates) Set(at int, perByte float64) {
	r.PerByte[at] = perByte
	column := noRates
	for i := at % r.Stride; i < len(r.PerByte); i += r.Stride {
		column.add(r.PerByte[i])
	}
	r.Columns[at%r.Stride] = column
}

package main

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// bucket is one line of a Prometheus histogram.
type bucket struct {
	le    float64 // upper edge
	count float64 // of all values up to le
}

// quantile estimates a quantile of the values that a histogram gained between two scrapes. It interpolates
// linearly within the bucket. Series that differ in other labels are added up.
func quantile(before, after []byte, name string, q float64) (float64, bool) {
	gained := buckets(after, name)
	for le, count := range buckets(before, name) {
		gained[le] -= count
	}
	var all []bucket
	for le, count := range gained {
		all = append(all, bucket{le, count})
	}
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	if len(all) == 0 || all[len(all)-1].count <= 0 {
		return 0, false
	}
	want := q * all[len(all)-1].count
	low := 0.0
	below := 0.0
	for _, b := range all {
		if b.count >= want && b.count > below {
			if math.IsInf(b.le, 1) {
				return low, true
			}
			return low + (b.le-low)*(want-below)/(b.count-below), true
		}
		low, below = b.le, b.count
	}
	return low, true
}

func buckets(text []byte, name string) map[float64]float64 {
	sums := map[float64]float64{}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name+"_bucket{")
		if !ok {
			continue
		}
		_, edge, _ := strings.Cut(rest, `le="`)
		edge, _, _ = strings.Cut(edge, `"`)
		fields := strings.Fields(line)
		le, err1 := strconv.ParseFloat(edge, 64)
		count, err2 := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err1 == nil && err2 == nil {
			sums[le] += count
		}
	}
	return sums
}

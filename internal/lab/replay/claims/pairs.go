package claims

import (
	"cmp"
	"slices"
)

// figure is a figure of many requests: the quotient of two sums over requests, or a quantile.
type figure struct {
	of       func(*Answer) (number, weight float64)
	quantile float64 // of number; 0: sum of number over sum of weight
}

// one counts a request as one.
func one(value func(*Answer) float64) func(*Answer) (float64, float64) {
	return func(a *Answer) (float64, float64) { return value(a), 1 }
}

func ttft(a *Answer) float64 { return float64(a.TTFT) }
func tpot(a *Answer) float64 { return float64(a.TPOT) }

// steady is f without the first call of each session, because the first calls of clients come all at once.
func steady(f figure) figure {
	return figure{quantile: f.quantile, of: func(a *Answer) (float64, float64) {
		if a.Call == 0 {
			return 0, 0
		}
		return f.of(a)
	}}
}

// The figures.
var (
	meanTTFT = figure{of: one(ttft)}
	p50TTFT  = figure{of: one(ttft), quantile: 0.5}
	p90TTFT  = figure{of: one(ttft), quantile: 0.9}
	p99TTFT  = figure{of: one(ttft), quantile: 0.99}
	// Figures of served requests.
	longestTTFT = figure{quantile: 1, of: func(a *Answer) (float64, float64) {
		if a.Refused || a.Failed {
			return 0, 0
		}
		return ttft(a), 1
	}}
	p99TPOT   = figure{of: one(tpot), quantile: 0.99}
	hit       = figure{of: func(a *Answer) (float64, float64) { return float64(a.Cached), float64(a.Prompt) }}
	moved     = figure{of: one(func(a *Answer) float64 { return float64(a.Moved) })}
	errors10k = figure{of: one(func(a *Answer) float64 {
		if a.Failed || a.Refused {
			return 1e4
		}
		return 0
	})}
	good = figure{of: one(func(a *Answer) float64 {
		if a.good() {
			return 1
		}
		return 0
	})}
)

// sample has a figure's numbers from the runs of one policy, stored for many sums with different weights.
type sample struct {
	figure
	unit           []int32 // session of each number, because whole sessions are resampled
	number, weight []float64
}

// units is one more than the largest session number.
func units(groups ...[]*Trial) int {
	n := 0
	for _, runs := range groups {
		for _, r := range runs {
			if k := len(r.Answers); k > 0 {
				n = max(n, int(r.Answers[k-1].Session)+1)
			}
		}
	}
	return n
}

// sampleOf takes the figure of every answer in keep, seed by seed. nil keeps all.
func sampleOf(f figure, runs []*Trial, keep []map[id]bool) *sample {
	s := &sample{figure: f}
	for i, r := range runs {
		for k := range r.Answers {
			a := &r.Answers[k]
			if keep != nil && !keep[i][a.id()] {
				continue
			}
			number, weight := f.of(a)
			s.unit = append(s.unit, a.Session)
			s.number = append(s.number, number)
			s.weight = append(s.weight, weight)
		}
	}
	if f.quantile > 0 {
		s.sort()
	}
	return s
}

func (s *sample) sort() {
	order := make([]int, len(s.number))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(s.number[a], s.number[b]) })
	sorted := sample{figure: s.figure}
	for _, i := range order {
		sorted.unit = append(sorted.unit, s.unit[i])
		sorted.number = append(sorted.number, s.number[i])
		sorted.weight = append(sorted.weight, s.weight[i])
	}
	*s = sorted
}

// sum returns the figure when each session counts times[session] times.
func (s *sample) sum(times []float64) float64 {
	if s.quantile > 0 {
		return s.atQuantile(times)
	}
	number, weight := 0.0, 0.0
	for i, u := range s.unit {
		number += times[u] * s.number[i]
		weight += times[u] * s.weight[i]
	}
	if weight == 0 {
		return 0
	}
	return number / weight
}

func (s *sample) atQuantile(times []float64) float64 {
	all := 0.0
	for i, u := range s.unit {
		all += times[u] * s.weight[i]
	}
	below := 0.0
	for i, u := range s.unit {
		if below += times[u] * s.weight[i]; below >= s.quantile*all && below > 0 {
			return s.number[i]
		}
	}
	return 0
}

// id identifies a request of a trace.
type id struct{ session, call int32 }

func (a *Answer) id() id { return id{a.Session, a.Call} }

// common returns, seed by seed, the requests that are measured in every group.
func common(groups ...[]*Trial) []map[id]bool {
	out := make([]map[id]bool, len(groups[0]))
	for seed := range out {
		count := map[id]int{}
		for _, runs := range groups {
			for k := range runs[seed].Answers {
				count[runs[seed].Answers[k].id()]++
			}
		}
		out[seed] = make(map[id]bool, len(count))
		for x, n := range count {
			if n == len(groups) {
				out[seed][x] = true
			}
		}
	}
	return out
}

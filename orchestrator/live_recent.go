package orchestrator

import (
	"slices"
	"time"
)

// Recent says how the requests of the last minute went, as far as records are kept. Unknown numbers are -1.
type Recent struct {
	Seconds   float64   `json:"seconds"` // that the records go back, at most 60
	Requests  int       `json:"requests"`
	Errors    int       `json:"errors"` // of the router or an engine; clients that left are none
	Split     int       `json:"split"`
	Retried   int       `json:"retried"`
	First     Quantiles `json:"first_ms"`     // to the first content, of streams
	Predicted Quantiles `json:"predicted_ms"` // of the same
	Token     Quantiles `json:"token_ms"`     // between tokens behind the first
	Prompt    int       `json:"prompt_tokens"`
	Available int       `json:"available_tokens"` // of requests of which all three are known
	Captured  int       `json:"captured_tokens"`
	Delivered int       `json:"delivered_tokens"`
}

// Quantiles are of some values, -1 where there are none.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

func quantiles(of []float64) Quantiles {
	if len(of) == 0 {
		return Quantiles{-1, -1, -1}
	}
	slices.Sort(of)
	at := func(q float64) float64 { return of[min(int(q*float64(len(of))), len(of)-1)] }
	return Quantiles{at(0.5), at(0.9), at(0.99)}
}

// recent sums up records, the newest of which is the first. A record is of when its request came.
func recent(kept []*Record, now time.Time) Recent {
	var s Recent
	var first, predicted, token []float64
	for _, r := range kept {
		ended := r.Time.Add(time.Duration(r.Phases.Total * 1e6))
		age := now.Sub(ended)
		if age > time.Minute {
			continue
		}
		s.Seconds = max(s.Seconds, age.Seconds())
		s.count(r)
		if !r.Streamed || r.Outcome != "ok" {
			continue
		}
		first = append(first, r.Phases.First)
		if r.Decision != nil {
			predicted = append(predicted, r.Decision.TTFT)
		}
		if r.Output > 1 {
			token = append(token, (r.Phases.Total-r.Phases.First)/float64(r.Output-1))
		}
	}
	s.First, s.Predicted, s.Token = quantiles(first), quantiles(predicted), quantiles(token)
	return s
}

// count takes one request into the sums.
func (s *Recent) count(r *Record) {
	s.Requests++
	if r.Outcome != "ok" && r.Outcome != goneKind {
		s.Errors++
	}
	if r.Mode == "split" {
		s.Split++
	}
	if r.Attempts > 1 {
		s.Retried++
	}
	if r.Outcome == "ok" && r.Available >= 0 && r.Captured >= 0 && r.Delivered >= 0 {
		s.Prompt += r.Prompt
		s.Available += r.Available
		s.Captured += r.Captured
		s.Delivered += r.Delivered
	}
}

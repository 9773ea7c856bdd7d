package admin

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

func quantiles(of []float64) page.Quantiles {
	if len(of) == 0 {
		return page.Quantiles{P50: -1, P90: -1, P99: -1}
	}
	slices.Sort(of)
	at := func(q float64) float64 { return of[min(int(q*float64(len(of))), len(of)-1)] }
	return page.Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

// recent sums up records, the newest of which is the first. A record is of when its request came.
func recent(kept []*observe.Record, now time.Time) page.Recent {
	var s page.Recent
	var first, predicted, token []float64
	for _, r := range kept {
		ended := r.Time.Add(time.Duration(r.Phases.Total * 1e6))
		age := now.Sub(ended)
		if age > time.Minute {
			continue
		}
		s.Seconds = max(s.Seconds, age.Seconds())
		countRecent(&s, r)
		if !r.Streamed || r.Outcome != "ok" {
			continue
		}
		first = append(first, r.Phases.First)
		if r.Decision != nil {
			predicted = append(predicted, r.Decision.TTFT)
		}
		if r.Output > 1 && r.Samples == 0 {
			token = append(token, (r.Phases.Total-r.Phases.First)/float64(r.Output-1))
		}
	}
	s.First = quantiles(first)
	s.Predicted = quantiles(predicted)
	s.Token = quantiles(token)
	return s
}

// countRecent takes one request into the sums.
func countRecent(s *page.Recent, r *observe.Record) {
	s.Requests++
	if r.Outcome != "ok" && r.Outcome != observe.Gone {
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

package planner

import (
	"fmt"
	"time"

	"tandem/scoring"
)

// TooLate says that the first token would come later than the policy allows, by prediction. The request is better refused at once: it would wait for
// nothing, and make others wait.
type TooLate struct {
	Predicted time.Duration // since the request came
	Limit     time.Duration
}

func (e *TooLate) Error() string {
	return fmt.Sprintf("the first token would come after %v, later than %v", e.Predicted.Round(time.Millisecond), e.Limit)
}

// Retry is when asking again may help, a hint.
func (e *TooLate) Retry() time.Duration { return max(e.Predicted-e.Limit, minRetry) }

// late returns why the chosen plan must not be booked, nil where it may. In raw units nothing is predicted.
func (pl *Planner) late(q *question) error {
	limit := pl.policy.FirstToken
	if limit <= 0 || pl.policy.Weights.Units == scoring.Raw {
		return nil
	}
	if predicted := q.Waited + seconds(pl.ttft(q.Exact)); predicted > limit {
		return &TooLate{predicted, limit}
	}
	return nil
}

// ttft is the predicted time to first token of the chosen plan, in seconds; with whole unset it is without what the prompt itself takes to compute and to move.
func (pl *Planner) ttft(whole bool) float64 {
	b := &pl.board
	on := &b.decodes[b.chosen.Decode]
	t, own := on.Decode.Room+on.Step+on.Local.Wait, on.Local.Warm
	if b.chosen.Prefill >= 0 {
		p := &b.prefills[b.chosen.Prefill]
		t, own = on.Decode.Room+on.Step+p.Wait, p.Warm+pl.landing(b.chosen)
	}
	if !whole {
		return t
	}
	return t + own
}

package planner

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/scoring"
)

// TooLate says that the first token would come later than the request allows, by prediction. The request is
// better refused at once: it would wait for nothing, and make others wait.
type TooLate struct {
	Predicted time.Duration // since the request came
	Limit     time.Duration
}

func (e *TooLate) Error() string {
	return fmt.Sprintf("the first token would come after %v, later than %v",
		e.Predicted.Round(time.Millisecond), e.Limit)
}

// Retry is when asking again may help, a hint.
func (e *TooLate) Retry() time.Duration { return max(e.Predicted-e.Limit, decode.MinRetry) }

// late returns why the chosen plan must not be booked, nil where it may. In raw units nothing is predicted.
func (b *comparison) late(q *question) error {
	limit := q.FirstBy
	if limit <= 0 || q.Begun || b.policy.Weights.Units == scoring.InRaw {
		return nil
	}
	ttft := b.ttft().Ahead
	if q.Exact { // of an estimate, the prompt's own time says nothing
		ttft = b.ttft().Total()
	}
	predicted := q.Waited + seconds(ttft)
	if predicted <= limit || q.Exact && q.Waited+seconds(ttft-b.doubt(q)) <= limit {
		return nil
	}
	return &TooLate{predicted, limit}
}

// doubt returns the doubtful seconds of the chosen plan's prefill: the learned time minus the time of the
// default profile. Only a replica that is idle and has answered nothing lately is in doubt. Refused requests
// teach nothing, so a replica that was slow for a moment would otherwise count as slow for good. While a
// request is under way on the replica, or its measurement is new, there is no doubt.
func (b *comparison) doubt(q *question) float64 {
	profile := estimate.DefaultSpeed()
	if b.chosen.Prefill < 0 {
		on := &b.decodes[b.chosen.Decode]
		if !on.Doubtful {
			return 0
		}
		return max(0, on.Local.Warm-profile.Prefill(q.decode.Tokens-on.Expected, on.Expected))
	}
	p := &b.prefills[b.chosen.Prefill]
	if !p.Doubtful {
		return 0
	}
	return max(0, p.Warm-profile.Prefill(p.Tokens-p.Expected, p.Expected))
}

// ttft is the predicted time to first token of the chosen plan.
func (b *comparison) ttft() scoring.TTFT {
	on := &b.decodes[b.chosen.Decode]
	if b.chosen.Prefill < 0 {
		return scoring.LocalTTFT(&on.Decode)
	}
	perByte := b.table.Rate(int(b.chosen.Prefill), int(b.chosen.Decode))
	return scoring.SplitTTFT(b.policy.model, &b.prefills[b.chosen.Prefill].Prefill, &on.Decode, perByte)
}

// behind returns why the chosen plan must not be booked yet, nil where it may: too much work of other
// requests is ahead of its prompt, or it would wait too long for room inside the decode replica. The error is
// *[NoRoom].
func behind(b *comparison, q *question) error {
	ahead, work := promptOf(b)
	ahead = max(ahead, b.decodes[b.chosen.Decode].Room)
	if q.MostAhead <= 0 || q.Begun || seconds(ahead) <= q.MostAhead {
		return nil
	}
	reason := fmt.Sprintf("its tenant has had its share, and %v of work is ahead", seconds(ahead))
	retry := max(seconds(ahead)-q.MostAhead, decode.MinRetry)
	return &NoRoom{Reason: reason, Retry: retry, Every: seconds(work / computers(b)), Work: seconds(work)}
}

// promptOf returns the seconds of work ahead of the prompt in the chosen plan, and the seconds of its own.
func promptOf(b *comparison) (ahead, own float64) {
	if b.chosen.Prefill < 0 {
		on := &b.decodes[b.chosen.Decode].Local
		return on.Wait, on.Read + on.Took()
	}
	p := &b.prefills[b.chosen.Prefill]
	return p.Wait, p.Warm + p.Read
}

// computers is how many replicas could compute the prompt.
func computers(b *comparison) float64 {
	if b.chosen.Prefill < 0 {
		return float64(len(b.decodes))
	}
	return float64(len(b.prefills))
}

// costOf returns what the chosen plan takes, see [Booking.Cost].
func costOf(b *comparison) float64 {
	_, own := promptOf(b)
	d := &b.decodes[b.chosen.Decode]
	blocks := b.pairs.decode.Replicas[d.Slot].Facts.Blocks
	sum := own / computers(b)
	if blocks > 0 {
		sum += float64(d.Need) / float64(blocks) * d.Output * d.Step / float64(len(b.decodes))
	}
	return sum
}

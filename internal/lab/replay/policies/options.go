package policies

import (
	"time"

	"github.com/tandem-router/tandem/internal/classes"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/policy"
	"github.com/tandem-router/tandem/scoring"
)

// Options of [NewTandem]. The zero value is production's defaults.
type Options struct {
	Rule    *planner.Rule // chooses the prefill replica, in the place of costs; nil for costs
	NoLocal bool
	NoSplit bool
	NoGoals bool // the goals of classes are unknown
	Order   Order
	Tuned   *Tuned // instead of production's weights; nil for those
}

// Tuned is what replay may set of production's weights.
type Tuned struct {
	Alpha   float64 // of prefill work; 0 for auto
	Beta    float64 // of the wait
	Gamma   float64 // of KV pressure
	Penalty float64 // of slower tokens for others
	Ties    float64 // times as wide as production's
	Margin  float64 // share of KV that is never promised
	Piece   float64 // s of one piece of a local prefill beside streams, 0 for the whole prompt
	Share   float64 // s between what routers tell each other of their bookings, 0 never
	Guesses float64 // above 0: of the prompts that they have sent, too
	Limit   float64 // s; a request with a later predicted first token is refused, 0 never
	Refuse  float64 // the same by the goal of its class, in times of the goal
	Lengths float64 // 0: nothing is learned of the lengths of answers
	Speeds  float64 // 0: nothing is learned of the speeds of engines
}

// unlearned is more than any play has of samples or answers.
const unlearned = 1 << 40

func (o *Options) params() []Param {
	if o.Tuned == nil {
		p := policy.Default()
		w := p.Weights
		o.Tuned = &Tuned{
			Beta: w.Beta, Gamma: w.Gamma, Penalty: w.DecodePenalty, Ties: 1,
			Margin: p.HeadroomMargin, Piece: p.Piece.Seconds(), Guesses: 1, Refuse: classes.TooLate, Lengths: 1,
			Speeds: 1,
		}
	}
	t := o.Tuned
	return []Param{
		{"alpha", &t.Alpha, "weight of prefill work, 0 for what the queue asks", []float64{0, 1, 2, 4, 8, 16}},
		{"beta", &t.Beta, "weight of the wait", nil},
		{"gamma", &t.Gamma, "weight of KV pressure", nil},
		{"penalty", &t.Penalty, "weight of slower tokens for others", nil},
		{"ties", &t.Ties, "times as wide as production's", nil},
		{"margin", &t.Margin, "share of a decode replica's KV that is never promised", nil},
		{
			"piece", &t.Piece,
			"seconds for which a decode replica computes of a prompt at once, beside streams; 0 for all of it", nil,
		},
		{"share", &t.Share, "seconds between what several routers tell each other, 0 for never", nil},
		{"guesses", &t.Guesses, "1: they tell each other of the prompts that they have sent, too; 0: not", nil},
		{
			"limit", &t.Limit,
			"seconds; a request whose first token would come later by prediction is refused, 0 for none", nil,
		},
		{
			"refuse", &t.Refuse,
			"times its goal; a request whose first token would come later by prediction is refused, 0 for none",
			nil,
		},
		{"lengths", &t.Lengths, "0: nothing is learned of the lengths of answers", nil},
		{"speeds", &t.Speeds, "0: nothing is learned of the speeds of engines", nil},
	}
}

// apply sets the weights.
func (t *Tuned) apply(p *planner.Policy) {
	w := &p.Weights
	if t.Alpha > 0 {
		w.Alpha = scoring.Alpha{Value: t.Alpha}
	}
	w.Beta = t.Beta
	w.Gamma = t.Gamma
	w.DecodePenalty = t.Penalty
	p.TieAbsolute = time.Duration(t.Ties * float64(p.TieAbsolute))
	p.TieRelative *= t.Ties
	if t.Lengths == 0 {
		p.Learning.Answers = unlearned
	}
	if t.Speeds == 0 {
		p.Learning.Samples = unlearned
	}
	p.HeadroomMargin = t.Margin
	p.Piece = time.Duration(t.Piece * float64(time.Second))
}

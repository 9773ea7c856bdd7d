package planner

import (
	"strconv"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// Calibration says whether plans are priced by what is learned of the speeds of replicas and of the links
// between them. It is learned all the time.
type Calibration uint8

// CalibrateOn prices plans by what was learned. CalibrateOff prices them by what the operator says, or the
// profile, alone. CalibrateShadow does that too, and tells for each plan what would have been chosen by what
// was learned, and what that would have saved.
const (
	CalibrateOn Calibration = iota
	CalibrateOff
	CalibrateShadow
)

func (c Calibration) String() string {
	switch c {
	case CalibrateOn:
		return "on"
	case CalibrateOff:
		return "off"
	case CalibrateShadow:
		return "shadow"
	}
	return "calibration(" + strconv.Itoa(int(c)) + ")"
}

// Shadow is the plan that would have been chosen by what was learned.
type Shadow struct {
	Mode    Mode       `json:"mode"`
	Prefill replica.ID `json:"prefill,omitzero"`
	Decode  replica.ID `json:"decode"`
	Same    bool       `json:"same"` // it is the plan that was booked, or one as good
	// By how much what was booked is worse than the best, by what was learned; at least 0.
	Regret float64 `json:"regret_ms"`
}

// byLearned lets q be evaluated by what was learned, on a scratch of its own, until end is called.
func (pl *Planner) byLearned(q *question) (end func()) {
	seeded := pl.scratch
	pl.scratch = pl.shadowScratch
	pl.pairs.rates, pl.pairs.learned = pl.pairs.learned, pl.pairs.rates
	q.prefill.Seeded, q.decode.Seeded = false, false
	pl.policy.setup(pl.pairs.handover.Seconds(pl.policy.Setup.Seconds()))
	return func() {
		pl.shadowScratch, pl.scratch = pl.scratch, seeded
		pl.pairs.rates, pl.pairs.learned = pl.pairs.learned, pl.pairs.rates
		q.prefill.Seeded, q.decode.Seeded = true, true
		pl.policy.setup(pl.policy.Setup.Seconds())
	}
}

// shadow evaluates the plans for q once more, by what was learned, on a scratch of its own. It returns nil
// where there is nothing to tell, as when a pool changed in between. It needs mu, and the scratch on which
// the booked plan was chosen; both are as before when it returns.
func (pl *Planner) shadow(q *question, now time.Time) *Shadow {
	if pl.policy.Calibration != CalibrateShadow || pl.policy.Weights.Units == scoring.InRaw ||
		pl.policy.Rule != nil {
		return nil
	}
	booked := pl.scratch
	defer pl.byLearned(q)()
	prefills, decodes := pl.pairs.prefill, pl.pairs.decode
	found := pl.evaluate(q, now)
	// The tables have been made again, in each other's places.
	if pl.pairs.prefill != prefills || pl.pairs.decode != decodes {
		pl.pairs.stale()
		return nil
	}
	if !found {
		return nil
	}
	b := &pl.scratch
	cost, ok := b.costOf(&booked)
	if !ok {
		return nil
	}
	least := min(b.best[0].Cost, b.locals[0].Cost)
	s := &Shadow{
		Mode: Local, Decode: pl.pairs.decode.Replicas[b.decodes[b.chosen.Decode].Slot].ID,
		Regret: max(0, cost-least) * 1e3,
	}
	if b.chosen.Prefill >= 0 {
		s.Mode, s.Prefill = Split, pl.pairs.prefill.Replicas[b.prefills[b.chosen.Prefill].Slot].ID
	}
	s.Same = cost <= b.table.Limit(least)
	return s
}

// costOf returns what the plan chosen on another scratch costs on this one.
func (b *scratch) costOf(other *scratch) (cost float64, ok bool) {
	j := -1
	for at := range b.decodes {
		if b.decodes[at].Slot == other.decodes[other.chosen.Decode].Slot {
			j = at
		}
	}
	if j < 0 {
		return 0, false
	}
	if other.chosen.Prefill < 0 {
		return b.table.Alone(j)
	}
	for i := range b.prefills {
		if b.prefills[i].Slot == other.prefills[other.chosen.Prefill].Slot {
			return b.table.Cost(i, j)
		}
	}
	return 0, false
}

// seed says how a question is priced.
func (pl *Planner) seed(p *prefill.Query, d *decode.Query) {
	seeded := Calibration(pl.calibration.Load()) != CalibrateOn
	p.Seeded, d.Seeded = seeded, seeded
}

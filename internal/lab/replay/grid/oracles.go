package grid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// Oracles are policies that know the lengths of all answers and the true state of all engines. A result that
// no oracle reaches cannot be reached by knowing more. A result that an oracle reaches and Tandem does not
// may be worth a look.
var Oracles = []string{"oracle-pieces", "oracle-terms", "oracle"}

// Known is the result of an oracle in a cell: the same fleet, load and seed.
type Known struct {
	Figures
	Capacity float64 `json:"capacity"` // 0: no tried load was held
}

// AddOracles plays a cell with the oracles that have not played it.
func (p *Player) AddOracles(ctx context.Context, l *Line) error {
	p.usual.enough = l.Enough
	for _, form := range Oracles[len(l.Known):] {
		x, err := p.play(ctx, l.Shape, form, l.Load, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Cell, err)
		}
		holds, err := p.hold(ctx, &p.usual, l.Shape, form, max(l.Capacity.Ours, l.Capacity.Rival), 1)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Cell, err)
		}
		l.Known = append(l.Known, Known{x.Figures, holds})
	}
	return nil
}

// WantsOracles reports whether no oracle has played some goal of s yet.
func (s *Shaped) WantsOracles() bool {
	return slices.ContainsFunc(s.Goals(), func(m *Match) bool { return m.Enough > 0 && m.Known == nil })
}

// AddOraclesTo finds the shape in which an oracle holds most, at both goals.
func (p *Player) AddOraclesTo(ctx context.Context, s *Shaped) (err error) {
	p.usual.enough, p.tight.enough = s.Usual.Enough, s.Tight.Enough
	for _, m := range s.Goals() {
		if m.Enough == 0 || m.Known != nil {
			continue
		}
		g := &p.usual
		if m == &s.Tight {
			g = &p.tight
		}
		guess := max(m.Ours.Capacity, m.Rival.Capacity, m.Unsplit.Capacity)
		start := m.Ours.Shape
		if prefills(start) == 0 {
			start = m.Rival.Shape
		}
		known, err := p.anywhere(ctx, g, Oracles, start, guess)
		if err != nil && !errors.Is(err, replay.ErrNotHeld) {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		m.Known = &known
	}
	return nil
}

// known is the best value of a figure among all oracles. Larger is better.
func (l *Line) known(of func(*Known) float64) float64 {
	best := of(&l.Known[0])
	for i := range l.Known[1:] {
		best = max(best, of(&l.Known[1+i]))
	}
	return best
}

// KnownGood is the share of answers that keep the usual goal, with the best oracle.
func (l *Line) KnownGood() float64 { return l.known(func(k *Known) float64 { return k.Usual }) }

// KnownTight is the same for the tight goal.
func (l *Line) KnownTight() float64 { return l.known(func(k *Known) float64 { return k.Tight }) }

// KnownRatio is the largest capacity of an oracle divided by the best fair rival's.
func (l *Line) KnownRatio() float64 {
	return over(l.known(func(k *Known) float64 { return k.Capacity }), l.Capacity.Rival)
}

// lateToo reports whether no oracle has an early enough first token either: at most 5 % later than the
// rival's. Only oracles count that have about as many answers within the tight goal as Tandem or the rival,
// whichever has more.
func (l *Line) lateToo() bool {
	least := max(l.Ours.Tight, l.Rival.Tight) - LossOf
	for i := range l.Known {
		if k := &l.Known[i]; k.Usual >= l.Enough && k.Tight >= least && k.TTFT <= lateBy*l.Rival.TTFT {
			return false
		}
	}
	return true
}

// KnownSummary compares oracles with the targets of a grid.
type KnownSummary struct {
	Name    string  `json:"name"`
	Cells   int     `json:"cells"`    // that oracles have played
	Lost    int     `json:"lost"`     // cells that Tandem lost to a fair rival in the same shape
	LostToo int     `json:"lost_too"` // lost cells in which no oracle is as good as the rival
	Least   float64 `json:"least_capacity_ratio"`
	Mean    float64 `json:"mean_capacity_ratio"` // of the oracle that holds most over the best rival
	Share   float64 `json:"mean_share"`          // Tandem's capacity over the largest of an oracle
	Tight   float64 `json:"tight"`               // of answers, with the oracle that has most
	Ours    float64 `json:"ours_tight"`
	Late    int     `json:"late"`
	LateToo int     `json:"late_too"` // late cells in which no oracle is in time and as even
}

// SumKnown sums up all cells that oracles have played, and separately the open and the blind kinds. It takes
// the first draw alone, because oracles play no other.
func SumKnown(lines []Line) (all []KnownSummary) {
	for _, kinds := range []string{"all", "open", "blind"} {
		s := KnownSummary{Name: kinds}
		var ratios, shares []float64
		for i := range lines {
			l := lines[i].first()
			if len(l.Known) < len(Oracles) || kinds != "all" && l.Blind != (kinds == "blind") {
				continue
			}
			s.Cells++
			s.Tight += l.KnownTight()
			s.Ours += l.Ours.Tight
			s.Lost += one01(l.Lost())
			s.LostToo += one01(l.Lost() && l.Good(Rival)-l.KnownGood() > LossOf)
			s.Late += one01(l.Late())
			s.LateToo += one01(l.Late() && l.lateToo())
			if l.Share == gapShare && l.limited(Ours) && l.limited(Rival) {
				ratios = append(ratios, l.KnownRatio())
				shares = append(shares, over(l.Ratio(), l.KnownRatio()))
			}
		}
		s.Tight, s.Ours = s.Tight/float64(max(s.Cells, 1)), s.Ours/float64(max(s.Cells, 1))
		if len(ratios) > 0 {
			s.Least, s.Mean = slices.Min(ratios), mean(ratios)
			s.Share = mean(shares)
		}
		if s.Cells > 0 {
			all = append(all, s)
		}
	}
	return all
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

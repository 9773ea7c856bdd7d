package grid

import (
	"fmt"
	"io"
)

// PrintShapedTables writes the figures of best shapes, a table for each goal, for the fleets that keep the
// goal when they are idle.
func PrintShapedTables(w io.Writer, shaped []Shaped) error {
	for _, goal := range goals {
		all := only(pointers(shaped), func(s *Shaped) bool { return s.At(goal).Enough > 0 })
		columns := [][]*Shaped{
			all,
			only(all, func(s *Shaped) bool { return !s.Blind }),
			only(all, func(s *Shaped) bool { return s.Blind }),
		}
		heads := []string{goal + " goal", "all", "open", "blind"}
		if err := printColumns(w, heads, columns, shapedRows(goal)); err != nil {
			return err
		}
	}
	return nil
}

// shapedRows are the rows about best shapes at one goal.
func shapedRows(goal string) []row[Shaped] {
	at := func(s *Shaped) *Match { return s.At(goal) }
	return []row[Shaped]{
		{"fleets", func(all []*Shaped) string { return fmt.Sprint(len(all)) }},
		{"capacity over the better of both: least; median; mean; less in", func(all []*Shaped) string {
			return spreadBehind(matched(all, at, (*Match).Ratio))
		}},
		{"more by over 3 %, within 3 %, less by over 3 %", func(all []*Shaped) string {
			return threeWays(matched(all, at, (*Match).Ratio))
		}},
		{"ours is best in one pool; the better rival is", func(all []*Shaped) string {
			pooled := func(s *Shaped) bool { return prefills(at(s).Ours.Shape) == 0 }
			others := func(s *Shaped) bool { return at(s).Unsplit.Held() >= at(s).Rival.Held() }
			return fmt.Sprintf("%d; %d", count(all, pooled), count(all, others))
		}},
		{"capacity over one pool: least; median; mean; less in", func(all []*Shaped) string {
			return spreadBehind(matched(all, at,
				func(m *Match) float64 { return over(m.Ours.Held(), m.Unsplit.Held()) }))
		}},
		{"first draw, where oracles have played: ours; the best of them", func(all []*Shaped) string {
			played := only(all, func(s *Shaped) bool { return at(s).Known != nil })
			if len(played) == 0 {
				return ""
			}
			return fmt.Sprintf("%d: %s; %s", len(played), spread(matched(played, at, (*Match).first)),
				spread(matched(played, at, func(m *Match) float64 {
					x, _ := m.KnownRatio()
					return x
				})))
		}},
	}
}

// first is our capacity over the better rival's with the first draw.
func (m *Match) first() float64 {
	return over(m.Ours.Capacity, max(m.Rival.Capacity, m.Unsplit.Capacity))
}

func matched(all []*Shaped, at func(*Shaped) *Match, of func(*Match) float64) (xs []float64) {
	for _, s := range all {
		xs = append(xs, of(at(s)))
	}
	return xs
}

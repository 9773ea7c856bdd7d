package estimate

// Slowness compares what a member of a pool was measured to take with the fastest of the others.
type Slowness struct {
	Known bool    // it was measured well enough to tell
	Than  int     // the fastest other, -1 where nobody else was measured
	Ratio float64 // how many times as long it takes
	least float64 // how many times as long it surely takes
}

// A member is slow when it surely takes slowFrom times as long as another, and is so until that falls below
// slowUntil.
const (
	slowFrom  = 2
	slowUntil = 1.5
)

// Compare compares the member at the given place with all others of its pool, by the seconds that the
// profile puts a piece of work at. It goes by what was measured, however long ago: nobody becomes faster
// for not being asked.
func Compare(all []*DecayingFit, at int, pool *SpeedFit, parts Work) Slowness {
	m := all[at]
	s := Slowness{Known: m.Known() && m.Error() < 1, Than: -1}
	if !s.Known {
		return s
	}
	best := 0.0
	for i, o := range all {
		if i == at || !o.Known() || o.Error() >= 1 {
			continue
		}
		if most := o.Measured(pool).sum(parts) * (1 + o.Error()); s.Than < 0 || most < best {
			s.Than, best = i, most
		}
	}
	if s.Than >= 0 {
		mine := m.Measured(pool).sum(parts)
		s.Ratio, s.least = mine/all[s.Than].Measured(pool).sum(parts), mine*(1-m.Error())/best
	}
	return s
}

// Slow reports whether that is slow, for a member that was so when asked last, or was not.
func (s Slowness) Slow(held bool) bool {
	if held {
		return s.least >= slowUntil
	}
	return s.least >= slowFrom
}

// sum returns the seconds of parts by f.
func (f Factors) sum(parts Work) float64 { return parts[0]*f[0] + parts[1]*f[1] + parts[2]*f[2] }

package estimate

// Slowness compares the measured speed of a member of a pool with the fastest other member.
type Slowness struct {
	Known bool    // the samples are good enough for the comparison
	Than  int     // the fastest other member, -1 if no other was measured
	Ratio float64 // how many times as long this member takes
	least float64 // how many times as long it takes at the least
}

// A member becomes slow when it certainly takes slowFrom times as long as another, and stays slow until the
// ratio falls below slowUntil.
const (
	slowFrom  = 2
	slowUntil = 1.5
)

// UsualTokens is the length of the prompts and contexts at which replicas are compared.
const UsualTokens = 1000

// Compare compares one member with all others of its pool, for a piece of work by the profile. It uses the
// last measurements, however old: a replica does not become faster by getting no requests.
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

// IsSlow reports whether the member is slow. held says that the member was slow before.
func (s Slowness) IsSlow(held bool) bool {
	if held {
		return s.least >= slowUntil
	}
	return s.least >= slowFrom
}

// sum returns the seconds of parts by f.
func (f Factors) sum(parts Work) float64 { return parts[0]*f[0] + parts[1]*f[1] + parts[2]*f[2] }

package estimate

// Pricing prices the prefills of plans. An old measurement is no longer believed (see [DecayingFit]), so
// that a request tests the engine again. That request must not lose too much: a prompt that would take
// minutes on a slow engine is the wrong test.
type Pricing struct {
	Speed    Speed   // present estimate
	Measured Speed   // last measured; zero if Speed is the same
	Risk     float64 // seconds that a request may lose by testing
}

// Prefill is [Speed.Prefill].
func (p *Pricing) Prefill(uncached, cached int) float64 {
	return max(p.Speed.Prefill(uncached, cached), p.Measured.Prefill(uncached, cached)-p.Risk)
}

// Usual returns the seconds to compute so many tokens at the pace of a prompt of a thousand.
func (p *Pricing) Usual(tokens float64) float64 { return tokens * p.Prefill(1000, 0) / 1000 }

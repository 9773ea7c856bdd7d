package estimate

// Pricing is a Speed to price plans with. What was measured long ago is no longer believed (see
// [DecayingFit]), but who is sent to see must not lose too much by that: a prompt that would take minutes on
// an engine that was slow is not the one to try whether it still is.
type Pricing struct {
	Speed    Speed   // as believed now
	Measured Speed   // as measured long ago; zero where that is the same
	Risk     float64 // seconds that somebody may lose by trying
}

// Prefill is [Speed.Prefill].
func (p *Pricing) Prefill(uncached, cached int) float64 {
	return max(p.Speed.Prefill(uncached, cached), p.Measured.Prefill(uncached, cached)-p.Risk)
}

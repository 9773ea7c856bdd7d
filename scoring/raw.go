package scoring

import "time"

// Raw is the model of the literal formula: beta x waiting - alpha x matched blocks + gamma x share of KV in
// use, of the prefill replica and then of the decode replica, whose blocks do not count in a Split. It knows
// no transfer, no speed and no failures.
type Raw struct{ Weights }

// Prefill returns the terms of a Split that are p's alone.
func (m *Raw) Prefill(p *Prefill) Terms {
	return Terms{
		Wait: m.Beta * p.Waiting, Prefill: -m.Alpha.raw() * p.Blocks, Pressure: m.Gamma * known(p.Usage),
	}
}

// Decode returns the terms of a Split that are d's alone.
func (m *Raw) Decode(d *Decode) Terms {
	return Terms{Wait: m.Beta * d.Waiting, Pressure: m.Gamma * known(d.Usage)}
}

// Local returns the terms of d alone: the formula counts it twice, as the one that prefills and as the one
// that decodes.
func (m *Raw) Local(d *Decode) Terms {
	t := m.Decode(d)
	return Terms{Wait: 2 * t.Wait, Prefill: 0 - m.Alpha.raw()*d.Local.Blocks, Pressure: 2 * t.Pressure}
}

// Sender returns p as a side of pairs, between which nothing is predicted.
func (m *Raw) Sender(p *Prefill) Sender { return Sender{Ready: p.Ready()} }

// Receiver returns d as a side of pairs, between which nothing is predicted.
func (m *Raw) Receiver(*Decode) Receiver { return Receiver{} }

// Ties returns equal sums alone, and prefers a Split to a Local plan of the same sum.
func (m *Raw) Ties(time.Duration, float64) Ties { return Ties{Absolute: 1e-9, SplitFirst: true} }

func known(x float64) float64 {
	if x != x {
		return 0
	}
	return x
}

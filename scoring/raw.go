package scoring

import "time"

// Raw is the model of the literal formula: beta x waiting - alpha x matched blocks + gamma x share of KV in
// use, summed over the prefill and the decode replica. In a Split the blocks of the decode replica do not
// count. Raw has no transfers, no speeds and no failures.
type Raw struct{ Weights }

// Prefill returns the terms of a Split that belong to p.
func (m *Raw) Prefill(p *Prefill) Terms {
	return Terms{
		Wait: m.Beta * p.Waiting, Prefill: -m.Alpha.raw() * p.Blocks, Pressure: m.Gamma * known(p.Usage),
	}
}

// Decode returns the terms of a Split that belong to d.
func (m *Raw) Decode(d *Decode) Terms {
	return Terms{Wait: m.Beta * d.Waiting, Pressure: m.Gamma * known(d.Usage)}
}

// Local returns the terms of the Local plan on d: the formula counts d twice, as prefill and as decode
// replica.
func (m *Raw) Local(d *Decode) Terms {
	t := m.Decode(d)
	return Terms{Wait: 2 * t.Wait, Prefill: 0 - m.Alpha.raw()*d.Local.Blocks, Pressure: 2 * t.Pressure}
}

// Sender returns the prefill side p. Raw predicts nothing between two sides.
func (m *Raw) Sender(p *Prefill) Sender { return Sender{Ready: p.Ready()} }

// Receiver returns the decode side. Raw predicts nothing between two sides.
func (m *Raw) Receiver(*Decode) Receiver { return Receiver{} }

// Ties returns only equal sums, and prefers a Split to a Local plan of the same sum.
func (m *Raw) Ties(time.Duration, float64) Ties { return Ties{Absolute: 1e-9, SplitFirst: true} }

func known(x float64) float64 {
	if x != x {
		return 0
	}
	return x
}

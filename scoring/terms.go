package scoring

import "iter"

// Terms is the cost of one plan, weighted and ready to be added, in seconds (in raw units: in the formula's
// own). Lower is better.
type Terms struct {
	Wait    float64 `json:"wait"`    // behind work queued on the replica that prefills
	Prefill float64 `json:"prefill"` // own prefill, times alpha
	// Until the decode replica has room, and has computed the prompts that it prefills itself.
	Room     float64 `json:"room"`
	Transfer float64 `json:"transfer"` // of the KV blocks that the decode replica lacks
	Decode   float64 `json:"decode"`   // slower tokens for the requests that decode there
	// By which its own answer takes longer than on the fastest replica of the pool.
	Answer float64 `json:"answer"`
	// Local: requests that decode there stand still while it prefills, and those whose blocks come, or who come,
	// meanwhile wait. Split: others wait for its transfer.
	Interference float64 `json:"interference"`
	Pressure     float64 `json:"pressure"` // risk of preemption, from KV in use
	// Of the last minutes, as seconds that another is expected to cost.
	Failures float64 `json:"failures"`
}

// Total returns the sum.
func (t Terms) Total() float64 {
	return t.Wait + t.Prefill + t.Room + t.Transfer + t.Decode + t.Answer +
		t.Interference + t.Pressure + t.Failures
}

// Plus returns t with every term of o added.
func (t Terms) Plus(o Terms) Terms {
	return Terms{
		t.Wait + o.Wait, t.Prefill + o.Prefill, t.Room + o.Room, t.Transfer + o.Transfer, t.Decode + o.Decode,
		t.Answer + o.Answer,
		t.Interference + o.Interference, t.Pressure + o.Pressure, t.Failures + o.Failures,
	}
}

// Scale returns t with every term times k.
func (t Terms) Scale(k float64) Terms {
	return Terms{
		t.Wait * k, t.Prefill * k, t.Room * k, t.Transfer * k, t.Decode * k, t.Answer * k, t.Interference * k,
		t.Pressure * k, t.Failures * k,
	}
}

// All walks the terms by their JSON names.
func (t Terms) All() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		_ = yield("wait", t.Wait) && yield("prefill", t.Prefill) && yield("room", t.Room) &&
			yield("transfer", t.Transfer) &&
			yield("decode", t.Decode) && yield("answer", t.Answer) && yield("interference", t.Interference) &&
			yield("pressure", t.Pressure) && yield("failures", t.Failures)
	}
}

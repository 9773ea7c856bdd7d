package scoring

import "iter"

// Terms is the cost of one plan, weighted, in seconds (in raw units: in the formula's own units). Lower is
// better.
type Terms struct {
	Wait    float64 `json:"wait"`    // behind queued work on the replica that prefills
	Prefill float64 `json:"prefill"` // of this prompt, times alpha
	// Reading cached blocks back to the GPU that prefills.
	Read float64 `json:"read,omitzero"`
	// Of blocks that the prefill replica evicts for this prompt and will need again.
	Evicted float64 `json:"evicted,omitzero"`
	// Until the decode replica has room, and has finished its local prefills.
	Room float64 `json:"room"`
	// Of the KV blocks that the decode replica lacks, and of the blocks that the replica pulls which prefills.
	Transfer float64 `json:"transfer"`
	Decode   float64 `json:"decode"` // delay of tokens for the requests that decode there
	// How much longer the answer takes than on the fastest replica of the pool.
	Answer float64 `json:"answer"`
	// Local: running requests stop during the prefill, and arriving requests and blocks wait. Split: other
	// transfers wait for this one.
	Interference float64 `json:"interference"`
	Pressure     float64 `json:"pressure"` // risk of preemption, from KV in use
	// Expected cost of another failure, by the failures of the last minutes.
	Failures float64 `json:"failures"`
	// Of a first token, tokens or a last token after the goals of the request's class.
	Late float64 `json:"late,omitzero"`
}

// Total returns the sum.
func (t Terms) Total() float64 {
	return t.Wait + t.Prefill + t.Read + t.Evicted + t.Room + t.Transfer + t.Decode + t.Answer +
		t.Interference + t.Pressure + t.Failures + t.Late
}

// Plus returns t with every term of o added.
func (t Terms) Plus(o Terms) Terms {
	return Terms{
		t.Wait + o.Wait, t.Prefill + o.Prefill, t.Read + o.Read, t.Evicted + o.Evicted, t.Room + o.Room,
		t.Transfer + o.Transfer,
		t.Decode + o.Decode, t.Answer + o.Answer, t.Interference + o.Interference, t.Pressure + o.Pressure,
		t.Failures + o.Failures, t.Late + o.Late,
	}
}

// Scale returns t with every term times k.
func (t Terms) Scale(k float64) Terms {
	return Terms{
		t.Wait * k, t.Prefill * k, t.Read * k, t.Evicted * k, t.Room * k, t.Transfer * k, t.Decode * k,
		t.Answer * k,
		t.Interference * k, t.Pressure * k, t.Failures * k, t.Late * k,
	}
}

// All walks the terms by their JSON names.
func (t Terms) All() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		_ = yield("wait", t.Wait) && yield("prefill", t.Prefill) && yield("read", t.Read) &&
			yield("evicted", t.Evicted) &&
			yield("room", t.Room) && yield("transfer", t.Transfer) && yield("decode", t.Decode) &&
			yield("answer", t.Answer) && yield("interference", t.Interference) &&
			yield("pressure", t.Pressure) && yield("failures", t.Failures) && yield("late", t.Late)
	}
}

package planner

// LinkSpeed is what was learned of the path between two replicas.
type LinkSpeed struct {
	Pairing
	BytesPerSecond float64
	Samples        int // transfers that it was learned from
}

// LinkSpeeds lists the paths of which something was learned, as of the newest plan, in no order. Safe for
// concurrent use.
func (pl *Planner) LinkSpeeds() []LinkSpeed {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.pairs.prefill == nil || pl.pairs.decode == nil {
		return nil // nothing was planned since the policy changed
	}
	var all []LinkSpeed
	for pair, link := range pl.pairs.links {
		p, known := pl.pairs.slots[pair.Prefill]
		d, both := pl.pairs.slots[pair.Decode]
		if !known || !both || link.Samples() == 0 {
			continue // a replica of it has left
		}
		seed := pl.policy.seed(pl.pairs.prefill.Replicas[p], pl.pairs.decode.Replicas[d])
		all = append(all, LinkSpeed{pair, 1 / link.PerByte(seed), link.Samples()})
	}
	return all
}

package scoring

import "slices"

// exclusions is what may not be chosen of a [Table].
type exclusions struct {
	senderOut, receiverOut, localOut []bool
	pairsOut                         []int32 // in PerByte
}

// reset takes all back, for so many senders and receivers, and of these so many alone.
func (x *exclusions) reset(senders, receivers, local int) {
	x.senderOut = cleared(x.senderOut, senders)
	x.receiverOut = cleared(x.receiverOut, receivers)
	x.localOut = cleared(x.localOut, local)
	x.pairsOut = x.pairsOut[:0]
}

func cleared(s []bool, n int) []bool {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// ExcludeSender takes every Split of sender i out.
func (x *exclusions) ExcludeSender(i int) { x.senderOut[i] = true }

// ExcludeReceiver takes every Split of receiver j out.
func (x *exclusions) ExcludeReceiver(j int) { x.receiverOut[j] = true }

// ExcludeLocal takes receiver j out as one that prefills by itself.
func (x *exclusions) ExcludeLocal(j int) { x.localOut[j] = true }

// ExcludePair takes the pair at a place in PerByte out.
func (x *exclusions) ExcludePair(at int) {
	if !x.pairOut(at) {
		x.pairsOut = append(x.pairsOut, int32(at))
	}
}

func (x *exclusions) pairOut(at int) bool { return slices.Contains(x.pairsOut, int32(at)) }

// excludedPairs returns how many pairs would be possible, were they not excluded one by one.
func (t *Table) excludedPairs() (n int) {
	for _, at := range t.pairsOut {
		i, j := slices.Index(t.Row, at/int32(t.Stride)), slices.Index(t.Col, at%int32(t.Stride))
		if i >= 0 && j >= 0 && !t.senderOut[i] && !t.receiverOut[j] && t.PerByte[at] >= 0 {
			n++
		}
	}
	return n
}

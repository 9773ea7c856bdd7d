package scoring

import "slices"

// exclusions are the plans of a [Table] that must not be chosen.
type exclusions struct {
	senderOut, receiverOut, localOut []bool
	pairsOut                         []int32 // in PerByte
}

// reset removes all exclusions. The arguments are the numbers of senders, of receivers and of Local plans.
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

// ExcludeSender excludes every Split of sender i.
func (x *exclusions) ExcludeSender(i int) { x.senderOut[i] = true }

// ExcludeReceiver excludes every Split of receiver j.
func (x *exclusions) ExcludeReceiver(j int) { x.receiverOut[j] = true }

// ExcludeLocal excludes the Local plan of receiver j.
func (x *exclusions) ExcludeLocal(j int) { x.localOut[j] = true }

// ExcludePair excludes the pair at an index of PerByte.
func (x *exclusions) ExcludePair(at int) {
	if !x.pairOut(at) {
		x.pairsOut = append(x.pairsOut, int32(at))
	}
}

func (x *exclusions) pairOut(at int) bool { return slices.Contains(x.pairsOut, int32(at)) }

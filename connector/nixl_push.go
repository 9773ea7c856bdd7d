package connector

// NIXLPush is vLLM's push connector, one leg after the other: P answers with the place of its engine, D tells
// P where its own blocks are, and P writes them there. P matches the two legs by their request ids, which
// vLLM makes of the path and X-Request-Id.
//
// A decode leg that P has no blocks for waits for ever, and keeps its own blocks for ever, even after it has
// been cut. They are freed when P writes into them: P does after any prefill leg with the same id. So an id
// may never be used for another pair of legs. It must not end in "-" and eight hexadecimal digits either,
// because vLLM cuts such an end off before it compares ids (vLLM 0.32, nixl/push_worker.py).
type NIXLPush struct {
	Withheld *Withheld // what the engines' answers have shown; nil remembers nothing
}

var _ Connector = NIXLPush{}

// Traits are those of a push. An engine that refuses a leg tells its peer nothing.
func (NIXLPush) Traits() Traits {
	return Traits{
		Order: Sequential, Late: Strands, SamePath: true, Rescue: true, Engines: "NixlPushConnector",
		Series: "nixl",
	}
}

// EditPrefill asks for a prefill after which P keeps the blocks until it has written them.
func (NIXLPush) EditPrefill(leg *Leg, pair Pair) error {
	askNIXL(leg, pair)
	return nil
}

// EditDecode moves the reply's params into leg 2.
func (n NIXLPush) EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error {
	return (&nixlDecode{pushes, leg, pair, reply, n.Withheld}).edit(use)
}

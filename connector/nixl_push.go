package connector

// NIXLPush is vLLM's push connector, with one leg after the other. P answers with its address, D tells P the
// location of its own blocks, and P writes them. P matches the two legs by their request ids, which vLLM
// builds from path and X-Request-Id.
//
// If P has no blocks for a decode leg, the leg waits for ever and holds its own blocks for ever, even after
// it has been cut. P frees them by writing into them, which it does after any prefill leg with the same id.
// So an id must never be used for another pair of legs. It must not end in "-" and eight hexadecimal digits
// either, because vLLM cuts off such an end before it compares ids (vLLM 0.32, nixl/push_worker.py).
type NIXLPush struct {
	Withheld *Withheld // learned from the engines' answers; nil remembers nothing
}

var _ Connector = NIXLPush{}

// Traits returns the traits of push. A push engine that refuses a leg tells its peer nothing.
func (NIXLPush) Traits() Traits {
	return Traits{
		Order: Sequential, Late: Strands, SamePath: true, Rescue: true, Pulls: true, Engines: "NixlPushConnector",
		Series: "nixl",
	}
}

// EditPrefill asks for a prefill, and asks P to keep the blocks until it has written them.
func (NIXLPush) EditPrefill(leg *Leg, pair Pair) error {
	askNIXL(leg, pair)
	return nil
}

// EditDecode moves the reply's params into leg 2.
func (n NIXLPush) EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error {
	return (&decodeLeg{pushes, leg, pair, reply, n.Withheld}).edit(use)
}

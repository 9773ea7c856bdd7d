package connector

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/replica"
)

// P2PNCCL is the connector of old vLLM versions (up to about 0.23) in which the request id names both ends:
//
//	___prefill_addr_<P's ZMQ address>___decode_addr_<D's ZMQ address>_<attempt>
//
// The id comes back in the answers' own ids: before this connector can be configured, the front has to put
// its own in their place, since clients must not see addresses. Engines from 0.14 on need
// VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1, or decode waits for ever.
type P2PNCCL struct {
	Addr func(id replica.ID) (addr string, ok bool) // the ZMQ address, host:port, that an engine registered with
}

var _ Connector = P2PNCCL{}

// Order is Paired.
func (P2PNCCL) Order() Order { return Paired }

// EditPrefill names both ends.
func (c P2PNCCL) EditPrefill(leg *Leg, pair Pair) error { return c.name(leg, pair) }

// EditDecode names both ends in the same way. There is nothing to give back, and reply is not looked at.
func (c P2PNCCL) EditDecode(leg *Leg, pair Pair, _ *Reply, _ Use) error { return c.name(leg, pair) }

func (c P2PNCCL) name(leg *Leg, pair Pair) error {
	prefill, ok := c.Addr(pair.Prefill.ID)
	if !ok {
		return fmt.Errorf("no transfer address of %s", pair.Prefill.ID)
	}
	decode, ok := c.Addr(pair.Decode.ID)
	if !ok {
		return fmt.Errorf("no transfer address of %s", pair.Decode.ID)
	}
	if leg.SetHeader == nil {
		return fmt.Errorf("the leg has no headers to name both ends in")
	}
	leg.SetHeader("X-Request-Id", "___prefill_addr_"+prefill+"___decode_addr_"+decode+"_"+pair.AttemptID)
	return nil
}

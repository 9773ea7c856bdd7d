package keys

import (
	"hash/maphash"
	"sync"
	"time"
)

// mostFlows is how many flows of a tenant are told apart. The first is of requests that name no flow.
const mostFlows = 16

// Flows are the flows that clients of one tenant name, such as their own users. Flows divide the share of the
// tenant, so a client gains nothing with invented flows. Beyond [mostFlows], several names are one flow. The
// zero value is empty. Safe for concurrent use.
type Flows struct {
	mu    sync.Mutex // guards the following
	asked [mostFlows]time.Time
}

// lately is how long a flow counts after its latest request.
const lately = time.Minute

var flowSeed = maphash.MakeSeed()

// Note notes a request, and returns the number of its flow, below [mostFlows], and the part of the tenant's
// share that the flow has: 1 where no other flow asks. The name "" is the flow 0.
func (f *Flows) Note(name string, now time.Time) (number uint32, part float64) {
	if name != "" {
		number = 1 + uint32(maphash.String(flowSeed, name)%(mostFlows-1))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[number] = now
	live := 0
	for _, at := range f.asked {
		if !at.IsZero() && now.Sub(at) < lately {
			live++
		}
	}
	return number, 1 / float64(max(live, 1))
}

package orchestrator

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/waitline"
)

// These header fields carry hints.
const (
	// A vLLM engine prefers this priority to that of the body.
	priorityHeader = "X-Vllm-Priority"
	// It names the flow of a request, as for llm-d's router. A flow takes its part of the tenant's share.
	flowHeader = "X-Llm-D-Inference-Fairness-Id"
)

// prioritizes reports whether requests of a key may have a priority. Without keys every request may.
func prioritizes(k *keys.Key) bool { return k == nil || len(k.Classes) > 0 }

// priorityOf returns the priority for which a client asks; 0 for none. Smaller numbers come first. As in
// vLLM, the header counts before the body.
func priorityOf(client http.Header, body *openai.Request) int {
	if p, ok := priorityIn(client); ok {
		return int(p)
	}
	if body == nil {
		return 0
	}
	return body.Priority()
}

// priorityIn returns the integer in the client's X-Vllm-Priority.
func priorityIn(client http.Header) (p int64, ok bool) {
	asked := client.Get(priorityHeader)
	if asked == "" { // an error would take memory for each request
		return 0, false
	}
	p, err := strconv.ParseInt(asked, 10, 64)
	return p, err == nil
}

// flowOf returns whose share of the fleet a request takes. k is nil without keys. If a key has no choice of
// classes, its requests name no flow.
func flowOf(k *keys.Key, client http.Header, now time.Time) (o waitline.Order) {
	if k == nil || k.Weight == 0 {
		return o
	}
	name := ""
	if len(k.Classes) > 0 {
		name = client.Get(flowHeader)
	}
	number, part := k.Flows.Note(name, now)
	o.Tenant, o.Weight = k.Group, k.Weight*part
	if number > 0 {
		o.Tenant = max(1, k.Group^number*0x9e3779b1) // hardly ever the number of another tenant
	}
	return o
}

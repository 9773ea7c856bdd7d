package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

func (ck *checker) pool(field string, p Pool) {
	for i, r := range p.Replicas {
		ck.replica(fmt.Sprintf("%s.replicas[%d]", field, i), r)
	}
	ck.secret(field+".api_key", p.APIKey, false)
	ck.clientTLS(field, p)
	ck.oneOf(field+".index", p.Index, IndexEvents, IndexApproximate, IndexOff)
	ck.between(field+".block_size", p.BlockSize, 0, 65536)
	ck.between(field+".blocks", p.Blocks, 0, math.MaxInt32)
	ck.between(field+".speculative_tokens", p.SpeculativeTokens, 0, 64)
	ck.longer(field+".poll_interval", p.PollInterval, 50*time.Millisecond)
	ck.size(field+".index_bytes", p.IndexBytes, 1<<20)
	ck.oneOf(field+".policy", p.Policy, PolicyCost, PolicyTwoState, PolicyBlockTracker, PolicyPrefixHash, PolicyOverlapTiers)
	ck.rule(field, p)
}

func (ck *checker) rule(field string, p Pool) {
	r := p.Rule
	ck.share(field+".rule.threshold", r.Threshold)
	ck.weight(field+".rule.apart", r.Apart)
	ck.factor(field+".rule.times", r.Times)
	ck.factor(field+".rule.bound", r.Bound)
	for _, w := range []struct {
		name string
		got  float64
	}{{"overlap", r.Overlap}, {"load", r.Load}, {"health", r.Health}, {"hot", r.Hot}, {"warm", r.Warm}} {
		ck.weight(field+".rule."+w.name, w.got)
	}
	if sum := r.Overlap + r.Load + r.Health; math.Abs(sum-1) > 1e-9 && sum < math.Inf(1) {
		ck.add(field+".rule", fmt.Sprintf("has weights overlap, load and health that add up to %v", sum), "make them add up to 1")
	}
	if p.Index == IndexOff && p.Policy != PolicyCost {
		ck.add(field+".policy", fmt.Sprintf("is %s, which goes by blocks, and index is off, which names none", p.Policy), "choose cost, or index: events or approximate")
	}
}

func (ck *checker) clientTLS(field string, p Pool) {
	ck.pair(field+".tls", p.TLS.Cert, p.TLS.Key)
	if p.TLS.InsecureSkipVerify && p.TLS.CA != "" {
		ck.add(field+".tls.insecure_skip_verify", "believes any certificate, so ca decides nothing", "keep one of the two")
	}
	https := func(r Replica) bool { return strings.HasPrefix(r.URL, "https://") }
	if p.TLS != (ClientTLS{}) && len(p.Replicas) > 0 && !slices.ContainsFunc(p.Replicas, https) {
		ck.add(field+".tls", "is set and no replica has an https URL", "write https:// in the URLs or leave tls out")
	}
}

func (ck *checker) replica(field string, r Replica) {
	ck.url(field+".url", r.URL, "use api_key of the pool", "write the engine's own address or name")
	if strings.ContainsFunc(r.Name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",{}/\`, c) }) || len(r.Name) > 128 {
		ck.add(field+".name", fmt.Sprintf("%q is not a name", r.Name), `use letters, digits, ".", "-", "_" and ":", at most 128`)
	}
	ck.zmq(field+".events.endpoint", r.Events.Endpoint)
	ck.zmq(field+".events.replay", r.Events.Replay)
	if r.Events.Endpoint == "" && (r.Events.Replay != "" || r.Events.Topic != "") {
		ck.add(field+".events", "has no endpoint", "set endpoint too, or leave events out to ask the engine")
	}
	if r.Events.Replay != "" && r.Events.Replay == r.Events.Endpoint {
		ck.add(field+".events.replay", "is the endpoint of the live events", "replay is a second port of the engine")
	}
}

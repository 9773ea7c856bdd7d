package planner

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/scoring"
)

// Policy is every setting of decisions. It has no defaults: a zero is a zero. In production it is made from
// the configuration.
type Policy struct {
	Weights scoring.Weights
	// Of every prefill replica until its own speed is learned; a zero half begins with estimate.DefaultSpeed().
	Prefill estimate.Speed
	Decode  estimate.Speed // of every decode replica, with local prefills; as above

	Rule *Rule // chooses the prefill replica instead of the costs; nil for costs

	// Bytes per second by class of path, until learned for the pair; above 0.
	Links           [replica.Links]float64
	Setup           time.Duration // fixed time of one transfer
	KVBytesPerToken float64       // of base models that KVBytesOf leaves out; above 0
	KVBytesOf       map[string]float64

	NoLocal bool // no decode replica may compute a prompt, whatever a request allows

	HeadroomMargin float64 // share of a decode replica's blocks that is never promised, 0 to below 1
	ExpectedOutput int     // assumed tokens of an answer, until learned per model; at least 1
	OutputDoubt    float64 // factor by which answers may be longer, until learned; up to 1: no doubt
	Learning       decode.Learning

	// Length of a piece of a local prompt beside streams; 0 sends the prompt whole.
	Piece time.Duration

	TieAbsolute time.Duration // plans closer than this are a tie
	TieRelative float64       // ... or closer than this share

	PrefillLoadTTL time.Duration // a prefill replica's load report older than this says nothing; above 0
	DecodeLoadTTL  time.Duration // a decode replica's

	// When failing replicas and pairs are kept out; zero never, but their failures have a price.
	Ejection outlier.Settings
}

// check panics on an incomplete p, as far as the pools do not check it themselves.
func (p *Policy) check() {
	if slices.Min(p.Links[:]) <= 0 || p.KVBytesPerToken <= 0 {
		panic("planner: a policy without Links or KVBytesPerToken")
	}
}

// policyInForce is a policy with the values computed from it. Guarded by Planner.mu.
type policyInForce struct {
	Policy
	model scoring.Model   // chooses among the plans
	times scoring.Seconds // predicts times, in any units of the policy
}

func newPolicyInForce(p Policy) policyInForce {
	return policyInForce{
		Policy: p, model: p.Weights.Model(p.Setup, p.KVBytesPerToken),
		times: scoring.Seconds{Weights: p.Weights, Setup: p.Setup.Seconds(), BytesPerToken: p.KVBytesPerToken},
	}
}

// bytesOf returns the bytes of KV cache that a token has in a base model.
func (p *Policy) bytesOf(base string) float64 {
	if bytes := p.KVBytesOf[base]; bytes > 0 {
		return bytes
	}
	return p.KVBytesPerToken
}

// priceFor lets plans from now on move the KV cache of a base model.
func (p *policyInForce) priceFor(base string) {
	if len(p.KVBytesOf) == 0 {
		return
	}
	p.times.BytesPerToken = p.bytesOf(base)
	if s, ok := p.model.(*scoring.Seconds); ok {
		s.BytesPerToken = p.times.BytesPerToken
	}
}

// handOver sets the fixed time of a transfer, which does not depend on its size, to the learned one.
func (p *policyInForce) handOver(by *estimate.Handover) {
	p.times.Setup = by.Seconds(p.Setup.Seconds())
	if s, ok := p.model.(*scoring.Seconds); ok {
		s.Setup = p.times.Setup
	}
}

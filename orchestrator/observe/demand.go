package observe

import (
	"sync"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/prefill"
)

// Demand measures how many replicas of each pool the traffic of the last two minutes keeps busy, for any
// fleet. The zero Demand has seen no answer. Safe for concurrent use.
type Demand struct {
	mu     sync.Mutex           // guards the following
	tokens estimate.Utilization // tokens of answers
	held   estimate.Utilization // the same, each multiplied by the KV tokens of its sequence
}

// Ended records an answer. output is the number of tokens of all its sequences together.
func (m *Demand) Ended(prompt, output, sequences int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := float64(output)
	m.tokens.Add(now, n)
	m.held.Add(now, n*(float64(prompt)+n/2/float64(max(sequences, 1))))
}

// Pools returns how many replicas are kept busy with uncached prompts, on prefill replicas and in local
// prefills on decode replicas, and how many replicas are kept busy with answers.
func (m *Demand) Pools(
	prefills []prefill.MemberStatus, decodes []decode.MemberStatus, local []decode.PeerLoad, now time.Time,
) (prompts, answers float64) {
	for i := range prefills {
		prompts += prefills[i].Rho
	}
	for i := range local {
		prompts += local[i].Rho
	}
	return prompts, m.replicas(usual(decodes), now)
}

// usualReplica describes the speed and room of one decode replica. 0 is unknown, and no limit.
type usualReplica struct {
	step      estimate.Speed
	tokens    float64 // of KV
	sequences float64 // at once
}

// usual returns a replica with the mean speed of all and the room of the largest.
func usual(all []decode.MemberStatus) (u usualReplica) {
	n := float64(len(all))
	for i := range all {
		of := &all[i]
		u.step.D0 += of.Speed.D0 / n
		u.step.D1 += of.Speed.D1 / n
		u.step.D2 += of.Speed.D2 / n
		u.tokens = max(u.tokens, float64(of.Capacity*of.BlockSize))
		u.sequences = max(u.sequences, float64(of.MaxSequences))
	}
	return u
}

// slowest is the longest mean step that answers may have, in seconds: most people read no faster.
const slowest = 0.1

// replicas returns how many replicas the answers keep busy, if all are like of.
//
// A step takes D0, and more for each sequence in it and for its KV. If y replicas share the answers, these
// parts add own/y to each second, so a step takes D0/(1-own/y) seconds. It must not be longer than slowest.
// By Little's law, tokens that arrive at a rate have rate/y running sequences times the duration of a step.
// The sequences, and likewise their KV, must fit.
func (m *Demand) replicas(of usualReplica, now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	tokens, held := m.tokens.Rho(now), m.held.Rho(now)
	own := of.step.D1*tokens + of.step.D2*held
	y := own / max(1-of.step.D0/slowest, 0.1)
	if of.tokens > 0 {
		y = max(y, own+of.step.D0*held/of.tokens)
	}
	if of.sequences > 0 {
		y = max(y, own+of.step.D0*tokens/of.sequences)
	}
	return y
}

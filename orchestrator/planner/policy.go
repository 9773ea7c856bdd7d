package planner

import (
	"time"

	"tandem/internal/replica"
	"tandem/orchestrator/outlier"
	"tandem/scoring"
)

// Policy is everything an operator may set about decisions. The zero value works: every field at zero takes the default named beside it.
type Policy struct {
	Weights     scoring.Weights // all zero: scoring.Default()
	Calibration Calibration     // what plans are priced by; CalibrateOn
	Prefill     scoring.Speed   // of every prefill replica; a half at zero is learned, starting from scoring.DefaultSpeed()
	Decode      scoring.Speed   // of every decode replica, its own prefill included; as above

	PrefillRule, DecodeRule *Rule // how a replica of the pool is chosen, in the place of costs; nil for costs

	Links           [replica.Links]float64 // bytes a second by class of path, until learned for the pair; 100e9, 40e9, 40e9, 3e9
	Setup           time.Duration          // of one transfer, whatever its size; 2 ms
	KVBytesPerToken float64                // 128 KiB

	HeadroomMargin float64 // share of a decode replica's blocks that is never promised, 0..1; 0.02, below zero none
	ExpectedOutput int     // tokens an answer is taken to have, until learned per model; 256

	TieAbsolute time.Duration // plans closer than this are a tie; 2 ms, below zero none
	TieRelative float64       // ... or closer than this share; 0.02, below zero none

	LoadTTL time.Duration // a load report older than this says nothing; 10 s

	Ejection outlier.Settings // when failing replicas and pairs are kept out; zero never, but their failures have a price

	FirstToken time.Duration // a request whose first token would come later by prediction is refused; 0 never
}

func (p Policy) withDefaults() Policy {
	p.Weights = p.Weights.OrDefault()
	for i, d := range [replica.Links]float64{100e9, 40e9, 40e9, 3e9} {
		if p.Links[i] <= 0 {
			p.Links[i] = d
		}
	}
	p.Setup = orDefault(p.Setup, 2*time.Millisecond)
	p.KVBytesPerToken = orDefault(p.KVBytesPerToken, 128<<10)
	p.HeadroomMargin = orDefault(p.HeadroomMargin, 0.02)
	p.ExpectedOutput = orDefault(p.ExpectedOutput, 256)
	p.TieAbsolute = orDefault(p.TieAbsolute, 2*time.Millisecond)
	p.TieRelative = orDefault(p.TieRelative, 0.02)
	p.LoadTTL = orDefault(p.LoadTTL, 10*time.Second)
	return p
}

// orDefault returns v, d where v is zero, and zero where v is negative.
func orDefault[T int | float64 | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return max(v, 0)
}

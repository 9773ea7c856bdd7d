// Package policy turns the configuration into the settings of decisions. Production and replay share one
// default: [Of] of [config.Default]. No room below has own numbers for a setting of the file.
package policy

import (
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/scoring"
)

// Default returns what production decides by where a file says nothing.
func Default() planner.Policy { return Of(config.Default()) }

// Of returns what of cfg, which must have been validated, concerns decisions.
func Of(cfg *config.Config) planner.Policy {
	s := cfg.Scoring
	x := cfg.Experimental.Scoring
	return planner.Policy{
		Weights:         weights(cfg),
		Prefill:         estimate.Rates(x.Speed.Prefill, 0),
		Decode:          estimate.Rates(x.Speed.Local, x.Speed.Decode),
		Rule:            Rule(cfg.Experimental.Policy),
		Links:           links(s.Links),
		Setup:           setup,
		KVBytesPerToken: float64(s.KVBytesPerToken),
		KVBytesOf:       bytesOf(s.Models),
		HeadroomMargin:  s.HeadroomMargin,
		ExpectedOutput:  s.ExpectedOutput,
		OutputDoubt:     outputDoubt,
		Piece:           s.PrefillPiece,
		TieAbsolute:     tieAbsolute,
		TieRelative:     tieRelative,
		PrefillLoadTTL:  intervals * cfg.Pools.Prefill.PollInterval,
		DecodeLoadTTL:   intervals * cfg.Pools.Decode.PollInterval,
		Ejection:        ejection(cfg.Health.Ejection),
	}
}

const (
	setup     = 2 * time.Millisecond // fixed time of one transfer
	intervals = 10                   // time between two reads of an engine; older reports are ignored

	// Plans as close as this to the best are a tie: the exact minimum would send every request the same way
	// until the next report.
	tieAbsolute = 2 * time.Millisecond
	tieRelative = 0.02

	// The default is the length of answers in recorded chats, 211 to 343 tokens; a reasoning model has five
	// times as many.
	outputDoubt = 5
)

func weights(cfg *config.Config) scoring.Weights {
	s, units := cfg.Scoring, scoring.InSeconds
	if cfg.Experimental.Scoring.Units == config.Raw {
		units = scoring.InRaw
	}
	return scoring.Weights{
		Units: units, Alpha: scoring.Alpha{Auto: s.Alpha.Auto, Value: s.Alpha.Value},
		Beta: s.Beta, Gamma: s.Gamma, DecodePenalty: s.DecodePenalty,
	}
}

func bytesOf(models []config.ScoringModel) map[string]float64 {
	of := map[string]float64{}
	for _, m := range models {
		of[m.Model] = float64(m.KVBytesPerToken)
	}
	return of
}

func links(l config.Links) [replica.Links]float64 {
	return [replica.Links]float64{float64(l.Host), float64(l.Rack), float64(l.Zone), float64(l.Other)}
}

func ejection(e config.Ejection) outlier.Settings {
	return outlier.Settings{Failures: e.Failures, Share: e.Share, Base: e.Base, Max: e.Max, Trials: true}
}

package orchestrator

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"tandem/connector"
	"tandem/internal/config"
	"tandem/internal/replica"
	"tandem/internal/tokenizer"
	"tandem/orchestrator/outlier"
	"tandem/orchestrator/planner"
	"tandem/scoring"
)

// reloadError is why the newest configuration is not in force.
type reloadError struct {
	at  time.Time
	err error
}

// Apply puts cfg, which must have been validated, in force: for new requests at once, without touching those that run. On error the old one stays.
// Safe for concurrent use.
func (o *Orchestrator) Apply(cfg *config.Config) error {
	o.applyMu.Lock()
	defer o.applyMu.Unlock()
	con, err := connectorFor(cfg, o.opt.Connector)
	var others map[peerKey]*peer
	var certificate *tls.Certificate
	if err == nil {
		certificate, err = cfg.FrontCertificate()
	}
	if err == nil {
		others, err = o.peers.wanted(cfg)
	}
	if err == nil {
		err = o.fleet.apply(cfg)
	}
	if err != nil {
		o.Rejected(err)
		return err
	}
	o.peers.apply(others)
	if certificate != nil {
		o.certificate.Store(certificate)
	}
	old := o.snap.Load()
	o.planner.SetPolicy(policy(cfg))
	o.queue.setLimit(cfg.Limits.Queue)
	o.ring.resize(cfg.Decisions.Ring)
	if old == nil || old.cfg.Tokenizer != cfg.Tokenizer || old.cfg.Timeouts.Tokenize != cfg.Timeouts.Tokenize {
		o.tokens.Store(newResolver(cfg))
	}
	o.snap.Store(&snapshot{cfg: cfg, connect: con, keys: cfg.APIKeys})
	o.lastErr.Store(nil)
	o.m.reloads.WithLabelValues("applied").Inc()
	o.m.reloadOK.Set(1)
	o.m.reloadTime.Set(float64(time.Now().UnixNano()) / 1e9)
	o.queue.wake()
	o.tellChanges(old, cfg)
	return nil
}

// tellChanges logs what is different from before.
func (o *Orchestrator) tellChanges(old *snapshot, cfg *config.Config) {
	if old == nil {
		return
	}
	changes := config.Diff(old.cfg, cfg)
	for _, c := range changes {
		o.log.Info("configuration changed", "field", c.Field, "old", c.Old, "new", c.New, "effect", c.Effect)
	}
	o.log.Info("configuration applied", "changes", len(changes))
}

// Rejected tells that a newer configuration could not be used; the old one stays in force. The reason shows in the log, the metrics and /readyz.
func (o *Orchestrator) Rejected(err error) {
	o.lastErr.Store(&reloadError{at: time.Now(), err: err})
	o.m.reloads.WithLabelValues("rejected").Inc()
	o.m.reloadOK.Set(0)
	o.log.Error("configuration rejected, the old one stays in force", "error", err)
}

// Config returns the configuration in force.
func (o *Orchestrator) Config() *config.Config { return o.snap.Load().cfg }

func connectorFor(cfg *config.Config, instead connector.Connector) (connector.Connector, error) {
	if instead != nil {
		return instead, nil
	}
	if cfg.Connector.Type == config.NIXL {
		return connector.NIXL{Withheld: new(connector.Withheld)}, nil
	}
	return nil, fmt.Errorf("connector.type: %q is not known", cfg.Connector.Type)
}

func newResolver(cfg *config.Config) *tokenizer.Resolver {
	const none = -1 // where 0 would be the default
	return tokenizer.New(tokenizer.Options{
		RenderTimeout: cfg.Timeouts.Tokenize, TokenizeTimeout: cfg.Timeouts.Tokenize, CharsPerToken: cfg.Tokenizer.CharsPerToken,
		CacheBytes: cmp.Or(int64(cfg.Tokenizer.CacheBytes), none), ChatTTL: cmp.Or(cfg.Tokenizer.ChatTTL, none),
	})
}

// policy is what of the configuration concerns decisions.
func policy(cfg *config.Config) planner.Policy {
	s, x := cfg.Scoring, cfg.Experimental.Scoring
	units := scoring.InSeconds
	if x.Units == config.Raw {
		units = scoring.InRaw
	}
	weights := scoring.Weights{
		Units: units, Alpha: scoring.Alpha{Auto: s.Alpha.Auto, Value: s.Alpha.Value}, Beta: s.Beta, Gamma: s.Gamma,
		DecodePenalty: s.DecodePenalty, AffinityShare: s.AffinityShare, AffinitySaved: s.AffinitySaved,
	}
	p := planner.Policy{
		Weights: weights, KVBytesPerToken: float64(s.KVBytesPerToken), HeadroomMargin: orNone(s.HeadroomMargin), ExpectedOutput: s.ExpectedOutput,
		TieAbsolute: orNone(x.TieAbsolute), TieRelative: orNone(x.TieRelative),
		LoadTTL: 10 * cfg.Pools.Decode.PollInterval, FirstToken: cfg.Limits.FirstToken,
	}
	p.Calibration = map[string]planner.Calibration{config.CalibrationOff: planner.CalibrateOff, config.CalibrationShadow: planner.CalibrateShadow}[x.Calibration]
	e := cfg.Health.Ejection
	p.Ejection = outlier.Settings{Failures: e.Failures, Share: e.Share, Base: e.Base, Max: e.Max, Trials: true}
	p.Prefill, p.Decode = scoring.Rates(x.Speed.Prefill, 0), scoring.Rates(x.Speed.Local, x.Speed.Decode)
	p.PrefillRule, p.DecodeRule = rule(cfg.Experimental.Pools.Prefill), rule(cfg.Experimental.Pools.Decode)
	p.Links = [replica.Links]float64{float64(s.Links.Host), float64(s.Links.Rack), float64(s.Links.Zone), float64(s.Links.Other)}
	return p
}

// rule is what chooses in a pool by itself, nil where costs do.
func rule(p config.ExperimentalPool) *planner.Rule {
	r := p.Rule
	named := &planner.Rule{Name: p.Policy}
	switch p.Policy {
	case config.PolicyTwoState:
		named.Rule = scoring.TwoState{Threshold: r.Threshold, Apart: r.Apart, Times: r.Times}
	case config.PolicyBlockTracker:
		named.Rule = scoring.Tracker{Threshold: r.Threshold, Bound: r.Bound}
	case config.PolicyPrefixHash:
		named.Rule = scoring.PrefixHash{Bound: r.Bound}
	case config.PolicyOverlapTiers:
		named.Tiers = true
		named.Rule = scoring.Overlap{
			Overlap: r.Overlap, Load: r.Load, Hot: r.Hot, Warm: r.Warm, Threshold: r.Threshold,
			Otherwise: scoring.PrefixHash{Bound: r.Bound},
		}
	default:
		return nil
	}
	return named
}

// orNone turns a zero that an operator wrote into the planner's "none", since its own zero means the default.
func orNone[T float64 | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// errNoReload says that this process cannot read a configuration again.
var errNoReload = errors.New("started without a configuration file: there is nothing to reload")

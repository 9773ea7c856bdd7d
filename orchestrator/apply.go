package orchestrator

import (
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	engines "github.com/tandem-router/tandem/internal/setup"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/peers"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// reloads applies one configuration at a time.
type reloads struct {
	mu  sync.Mutex
	err atomic.Pointer[reloadError] // error of the newest configuration; nil if it is in force

	started atomic.Pointer[config.Config] // the first configuration; fields that need a restart keep its values
}

// needsRestart lists the fields whose newest values need a restart. Until then the values from the start are
// in force.
func (o *Orchestrator) needsRestart() []string { return o.snap.Load().later }

// notAsStarted lists the fields of cfg whose values need a restart.
func (o *Orchestrator) notAsStarted(cfg *config.Config) []string {
	var fields []string
	for _, c := range config.Diff(o.reloads.started.Load(), cfg) {
		if c.Effect == config.NeedsRestart {
			fields = append(fields, c.Field)
		}
	}
	return fields
}

// Changes lists what a reload of cfg would change. Safe for concurrent use.
func (o *Orchestrator) Changes(cfg *config.Config) []config.Change { return o.changes(o.Config(), cfg) }

// changes lists the differences of cfg. A field that returns to its value from the start needs no restart.
func (o *Orchestrator) changes(old, cfg *config.Config) []config.Change {
	list, later := config.Diff(old, cfg), o.notAsStarted(cfg)
	for i := range list {
		if c := &list[i]; c.Effect == config.NeedsRestart && !slices.Contains(later, c.Field) {
			c.Effect = config.Started
		}
	}
	return list
}

// reloadError says why the newest configuration is not in force.
type reloadError struct {
	at  time.Time
	err error
}

// rejected returns since when and why the newest configuration is not in force; nil if it is in force.
func (r *reloads) rejected() (since time.Time, err error) {
	if e := r.err.Load(); e != nil {
		return e.at, e.err
	}
	return time.Time{}, nil
}

// Apply puts cfg in force for new requests at once. Running requests are not affected. cfg must have been
// validated. If Apply returns an error, the old configuration stays in force. Safe for concurrent use.
func (o *Orchestrator) Apply(cfg *config.Config) error {
	o.reloads.mu.Lock()
	defer o.reloads.mu.Unlock()
	next, err := o.prepare(cfg)
	old := o.snap.Load()
	if err == nil {
		o.setConnector(next.snap)
		if err = o.setMembers(next.joined.Config); err != nil && old != nil {
			o.setConnector(old)
		}
	}
	if err != nil {
		o.answers.Discard(next.snap.answers, old.answerCache())
		if old != nil { // at the start nothing is in force yet, and the process ends with the error
			o.Rejected(err)
		}
		return err
	}
	if old == nil {
		o.reloads.started.Store(cfg)
	}
	o.putInForce(next, old)
	o.reloads.err.Store(nil)
	o.m.Config.Applied(next.snap.revision(), old.revision(), time.Now())
	o.queue.wake()
	o.tellChanges(old, cfg)
	return nil
}

// prepared is a checked configuration before any part takes effect.
type prepared struct {
	snap        *snapshot
	certificate *tls.Certificate        // nil for plain HTTP
	decisions   *observe.DecisionTarget // nil for none
	joined      discovery.Joined        // with the members from other sources than the file
	peers       peers.Wanted
}

// prepare makes all steps that can fail, and puts nothing in force.
func (o *Orchestrator) prepare(cfg *config.Config) (next prepared, err error) {
	next.snap = &snapshot{
		cfg: cfg, cors: newCORS(&cfg.CORS), keys: keyTable(cfg, o.peers.Keys()),
		classes: classTable(cfg), aliases: aliasesOf(cfg),
	}
	if o.reloads.started.Load() != nil {
		next.snap.later = o.notAsStarted(cfg)
	}
	if next.snap.connect, err = connectorFor(cfg, o.opt.Connector); err != nil {
		return next, err
	}
	if next.snap.inForce, err = cfg.InForce(); err != nil {
		return next, err
	}
	if next.decisions, err = o.file.Prepare(cfg.Decisions); err != nil {
		return next, err
	}
	if next.certificate, err = cfg.FrontCertificate(); err != nil {
		return next, err
	}
	next.snap.answers, err = o.answers.Prepare(&cfg.AnswerCache, o.snap.Load().answerCache())
	if err != nil {
		return next, err
	}
	next.joined = o.sources.Join(cfg)
	next.peers, err = o.peers.Wanted(next.joined.Config)
	return next, err
}

// putInForce gives a configuration to every part of the router, to requests last. The fleet has it already.
// old is the former configuration; nil at the start.
func (o *Orchestrator) putInForce(next prepared, old *snapshot) {
	cfg := next.snap.cfg
	o.peers.Apply(next.peers)
	o.sources.Apply(next.joined)
	if next.certificate != nil {
		o.certificate.Store(next.certificate)
	}
	decisions := policy.Of(cfg)
	decisions.NoLocal = next.snap.connect.Traits().NoPlain
	o.planner.SetPolicy(decisions)
	o.queue.setLimit(cfg.Limits.Queue)
	o.ring.Resize(cfg.Decisions.Ring)
	o.file.Apply(next.decisions)
	o.state.apply(cfg.State)
	if old == nil || old.cfg.Tokenizer != cfg.Tokenizer || old.cfg.Timeouts.Tokenize != cfg.Timeouts.Tokenize {
		o.tokens.Store(newResolver(cfg))
	}
	o.answers.Apply(next.snap.answers, old.answerCache(), &cfg.AnswerCache)
	o.snap.Store(next.snap)
	o.peers.Keys().Keep(next.snap.keys.Limits, time.Now())
	if old != nil {
		for name := range old.keys.Without(next.snap.keys) {
			o.m.Families.ForgetName("key", name)
		}
		for _, name := range old.classes.Names() {
			if !slices.Contains(next.snap.classes.Names(), name) {
				o.m.Families.ForgetName("class", name)
			}
		}
	}
	o.fleet.SetSplitting(cfg.Local != config.LocalAlways)
}

// setMembers gives the replicas of cfg to the fleet. The caller holds the mutex of the reloads.
func (o *Orchestrator) setMembers(cfg *config.Config) error {
	if err := o.fleet.Apply(cfg); err != nil {
		return err
	}
	o.state.drainFound(time.Now())
	return nil
}

// setConnector tells the fleet which connector the engines are to have.
func (o *Orchestrator) setConnector(s *snapshot) {
	o.fleet.SetConnector(engines.Of(s.connect.Traits()))
}

// rejoin puts members in force that the sources have found since the last call, as a reload does.
func (o *Orchestrator) rejoin() error {
	o.reloads.mu.Lock()
	defer o.reloads.mu.Unlock()
	joined := o.sources.Join(o.Config())
	if o.sources.Moves(joined) {
		peers, err := o.peers.Wanted(joined.Config)
		if err == nil {
			err = o.setMembers(joined.Config)
		}
		if err != nil {
			return err
		}
		o.peers.Apply(peers)
		o.queue.wake()
	}
	o.sources.Apply(joined)
	return nil
}

// tellChanges logs the changes.
func (o *Orchestrator) tellChanges(old *snapshot, cfg *config.Config) {
	if old == nil {
		return
	}
	changes := o.changes(old.cfg, cfg)
	for _, c := range changes {
		o.log.Info("configuration changed", "field", c.Field, "old", c.Old, "new", c.New, "effect", c.Effect)
	}
	o.log.Info("configuration applied", "changes", len(changes), "revision", o.snap.Load().inForce.Revision,
		"needs_restart", o.needsRestart())
}

// Rejected records that a newer configuration cannot be used. The old one stays in force. The reason shows in
// the log, the metrics and /readyz.
func (o *Orchestrator) Rejected(err error) {
	o.reloads.err.Store(&reloadError{at: time.Now(), err: err})
	o.m.Config.Rejected()
	o.log.Error("configuration rejected, the old one stays in force", "error", err)
}

// Config returns the configuration in force.
func (o *Orchestrator) Config() *config.Config { return o.snap.Load().cfg }

func connectorFor(cfg *config.Config, instead connector.Connector) (connector.Connector, error) {
	if instead != nil {
		return instead, nil
	}
	at := connector.Ports{Handshake: cfg.Connector.HandshakePort, Notify: cfg.Connector.NotifyPort}
	if named := connector.Named(cfg.Connector.Type, at); named != nil {
		return named, nil
	}
	return nil, fmt.Errorf("connector.type: %q is not known", cfg.Connector.Type)
}

func newResolver(cfg *config.Config) *tokenizer.Resolver {
	return tokenizer.New(tokenizer.Options{
		RenderTimeout: cfg.Timeouts.Tokenize, TokenizeTimeout: cfg.Timeouts.Tokenize,
		CharsPerToken: cfg.Tokenizer.CharsPerToken,
		CacheBytes:    int64(cfg.Tokenizer.CacheBytes), ChatTTL: cfg.Tokenizer.ChatTTL,
	})
}

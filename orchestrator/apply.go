package orchestrator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tandem/connector"
	"tandem/internal/config"
	"tandem/internal/tokenizer"
	"tandem/orchestrator/peers"
	"tandem/orchestrator/policy"
)

// reloads lets one configuration be applied at a time.
type reloads struct {
	mu  sync.Mutex
	err atomic.Pointer[reloadError] // of the newest, nil where it is in force

	started atomic.Pointer[config.Config] // the first; what takes a restart is in force as it says
}

// needsRestart lists the fields whose newest values take a restart. They are in force as they were at the
// start.
func (o *Orchestrator) needsRestart() []string {
	var fields []string
	for _, c := range config.Diff(o.reloads.started.Load(), o.Config()) {
		if c.Effect == config.NeedsRestart {
			fields = append(fields, c.Field)
		}
	}
	return fields
}

// reloadError is why the newest configuration is not in force.
type reloadError struct {
	at  time.Time
	err error
}

// Apply puts cfg, which must have been validated, in force: for new requests at once, without touching those
// that run. On error the old one stays. Safe for concurrent use.
func (o *Orchestrator) Apply(cfg *config.Config) error {
	o.reloads.mu.Lock()
	defer o.reloads.mu.Unlock()
	con, err := connectorFor(cfg, o.opt.Connector)
	var others peers.Wanted
	var certificate *tls.Certificate
	var says *config.InForce
	if err == nil {
		says, err = cfg.InForce()
	}
	if err == nil {
		err = writable(cfg.Decisions)
	}
	if err == nil {
		certificate, err = cfg.FrontCertificate()
	}
	if err == nil {
		others, err = o.peers.Wanted(cfg)
	}
	if err == nil {
		err = o.fleet.Apply(cfg)
	}
	if err != nil {
		o.Rejected(err)
		return err
	}
	o.peers.Apply(others)
	if certificate != nil {
		o.certificate.Store(certificate)
	}
	old := o.snap.Load()
	if old == nil {
		o.reloads.started.Store(cfg)
	}
	o.planner.SetPolicy(policy.Of(cfg))
	o.queue.setLimit(cfg.Limits.Queue)
	o.ring.resize(cfg.Decisions.Ring)
	o.file.apply(cfg.Decisions)
	if old == nil || old.cfg.Tokenizer != cfg.Tokenizer || old.cfg.Timeouts.Tokenize != cfg.Timeouts.Tokenize {
		o.tokens.Store(newResolver(cfg))
	}
	o.snap.Store(&snapshot{cfg: cfg, inForce: says, connect: con, keys: cfg.APIKeys})
	o.fleet.SetSplitting(cfg.Local != config.LocalAlways)
	o.reloads.err.Store(nil)
	o.m.config.applied(says.Revision, old.revision(), time.Now())
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
	o.log.Info("configuration applied", "changes", len(changes), "revision", o.snap.Load().inForce.Revision)
}

// Rejected tells that a newer configuration could not be used; the old one stays in force. The reason shows
// in the log, the metrics and /readyz.
func (o *Orchestrator) Rejected(err error) {
	o.reloads.err.Store(&reloadError{at: time.Now(), err: err})
	o.m.config.rejected()
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
	return tokenizer.New(tokenizer.Options{
		RenderTimeout: cfg.Timeouts.Tokenize, TokenizeTimeout: cfg.Timeouts.Tokenize,
		CharsPerToken: cfg.Tokenizer.CharsPerToken,
		CacheBytes:    int64(cfg.Tokenizer.CacheBytes), ChatTTL: cfg.Tokenizer.ChatTTL,
	})
}

// errNoReload says that this process cannot read a configuration again.
var errNoReload = errors.New("started without a configuration file: there is nothing to reload")

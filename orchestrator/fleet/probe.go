package fleet

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// probe asks for the facts until the server gives them; false when ctx ended first.
func (w *Watcher) probe(ctx context.Context) bool {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(wait*2, 5*time.Second) {
		asked, cancel := context.WithTimeout(ctx, ProbePatience*w.set.Load().probe)
		facts, err := w.client.Probe(asked)
		cancel()
		if err == nil {
			if err = w.accept(facts); err == nil {
				w.due.listed = time.Now()
				return true
			}
		}
		if ctx.Err() != nil {
			return false
		}
		w.markDown(err)
		w.judgeDrain(nil)
		if !w.life.sleep(ctx, jitter(wait)) {
			return false
		}
	}
	return false
}

// accept turns the facts into members of the pool.
func (w *Watcher) accept(facts []replica.Facts) error {
	if len(facts) == 0 {
		return errors.New("the server told nothing about itself")
	}
	if err := unusableConnector(facts[0].Connector); err != nil {
		return err
	}
	w.noteProcess(facts[0].Started)
	w.forgetTokens()
	w.markAlive()
	w.up.Store(true)
	w.fleet.join(w, facts)
	ms := w.Members()
	if len(ms) == 0 {
		return errLeft
	}
	w.showDistrust()
	for _, m := range ms {
		w.useUnlessAsleep(m.ID)
	}
	w.log.Info("replica joined", "replica", w.Name(), "pool", w.role.String(), "model", ms[0].Facts.Model,
		"version", ms[0].Facts.Version,
		"block_size", ms[0].Facts.BlockSize, "blocks", ms[0].Facts.Blocks, "ranks", len(
			ms,
		), "events", ms[0].Facts.Events.Endpoint)
	return nil
}

// unusableConnector refuses an engine with another KV-transfer protocol than Tandem's. A decode engine with
// MoRIIO assumes for every request, even an unsplit one, that its blocks are elsewhere. It then answers from
// blocks that were never filled, so no request at all may go to such an engine.
func unusableConnector(protocol string) error {
	if protocol == "moriio" {
		return errors.New("it has the MoRIIO connector, which answers from unfilled blocks what no MoRIIO router " +
			"sends: " +
			"start it with kv_connector NixlConnector")
	}
	return nil
}

// errLeft ends a watcher whose server has left the configuration. It appears in no log.
var errLeft = errors.New("it has left the configuration")

// setFacts notes the server's account of itself.
func (w *Watcher) setFacts(facts []replica.Facts) {
	w.facts.mu.Lock()
	defer w.facts.mu.Unlock()
	w.facts.known.facts, w.down.reason = facts, ""
	if len(facts) > 0 { // adapters count as served from now on: earlier weights are unknown
		w.facts.known.noteAdapters(nil, facts[0].AdapterRoots, time.Now())
	}
	w.remakeLocked()
}

// remakeLocked makes the replicas again, from the server's facts and the configuration.
func (w *Watcher) remakeLocked() {
	was := w.facts.known.members
	w.facts.known.members = w.replicasLocked(w.facts.known.facts)
	former := make([]replica.ID, len(w.facts.known.members))
	for i := range w.facts.known.members {
		switch {
		case len(was) != len(w.facts.known.members):
		case was[i].ID != w.facts.known.members[i].ID:
			former[i] = was[i].ID
		default:
			former[i] = w.facts.known.former[i]
		}
	}
	w.facts.known.former = former
}

// replicasLocked makes a replica from the facts of each rank. The engine's block size and number of blocks
// count before the file's. In the pool, its events count before both.
func (w *Watcher) replicasLocked(facts []replica.Facts) []replica.Replica {
	ms := make([]replica.Replica, len(facts))
	set := w.set.Load()
	for i, fact := range facts {
		fact.BlockSize, fact.Blocks = cmp.Or(fact.BlockSize,
			set.pool.BlockSize), cmp.Or(fact.Blocks, set.pool.Blocks)
		fact.Drafts = cmp.Or(fact.Drafts, set.pool.SpeculativeTokens)
		fact.AdapterRoots = withoutFolders(fact.AdapterRoots, &set.pool)
		ms[i] = replica.Replica{
			ID: w.id(i, len(facts)), Role: w.role, URL: w.key.url, Host: w.host, Rank: fact.FirstRank + i,
			Place: w.place(), Facts: fact, Draining: set.drain, Revision: set.cfg.Revision,
		}
		ms[i].Facts.Events = w.eventsLocked(fact, i, len(facts))
	}
	return ms
}

func (w *Watcher) id(i, n int) replica.ID {
	if n == 1 {
		return replica.ID(w.Name())
	}
	return replica.ID(w.Name() + "/dp" + strconv.Itoa(i))
}

// place fills the host from the URL, since two replicas at one address share a host.
func (w *Watcher) place() replica.Place {
	p := replica.Place(w.set.Load().cfg.Place)
	if p.Host == "" {
		p.Host = w.host
	}
	return p
}

// eventsLocked returns the event source of a rank to follow. The configuration's endpoint comes first, then
// the engine's own. ranks is the number of ranks of the server.
func (w *Watcher) eventsLocked(fact replica.Facts, rank, ranks int) replica.EventSource {
	set := w.set.Load()
	switch e := set.cfg.Events; {
	case set.pool.Index != config.IndexEvents || w.fleet.opt.NoEvents:
		return replica.EventSource{}
	case strings.HasPrefix(e.Endpoint, "/") && ranks > 1:
		return replica.EventSource{} // one stream for all ranks, which does not tell the ranks apart
	case e.Endpoint != "":
		e = e.OfRank(rank)
		return engine.EventSource(w.host, e.Endpoint, e.Replay, e.Topic)
	}
	return fact.Events
}

// unmeasured reports whether the engine could not tell its metrics when it was probed. Its start and its
// cache are then unknown.
func (w *facts) unmeasured() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.known.facts) > 0 && w.known.facts[0].Started == 0
}

// probeAgain probes once more, now that the engine tells its metrics. If the probe fails, the known facts
// stay.
func (w *Watcher) probeAgain(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, ProbePatience*w.set.Load().probe)
	defer cancel()
	facts, err := w.client.Probe(asked)
	if err != nil || len(facts) == 0 || facts[0].Started == 0 {
		return
	}
	if err := w.accept(facts); err == nil {
		w.follow(ctx)
	}
}

// NotProbed is the reason of a replica that has not been asked yet.
const NotProbed = "not probed yet"

// forgetTokens drops the token ids that the server's process made: a new process may have another tokenizer
// or template.
func (w *Watcher) forgetTokens() { w.fleet.opt.ForgetTokens(w.key.url) }

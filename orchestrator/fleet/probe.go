package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// probe asks for the facts until the server gives them; false when ctx ended first.
func (w *Watcher) probe(ctx context.Context) bool {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(wait*2, 5*time.Second) {
		asked, cancel := context.WithTimeout(ctx, ProbePatience*w.set.Load().probe)
		facts, err := w.client.Probe(asked)
		cancel()
		if err == nil {
			w.models.kv.locate(ctx, facts)
			if err = w.accept(facts); err == nil {
				w.models.listed = time.Now()
				return true
			}
		}
		if ctx.Err() != nil {
			return false
		}
		w.markDown(err)
		w.drain.judge(nil)
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
	if err := w.unusable(&facts[0]); err != nil {
		return err
	}
	w.noteProcess(facts[0].Started)
	w.forgetTokens()
	w.pulse.mark()
	w.pulse.up.Store(true)
	w.fleet.join(w, facts)
	ms := w.Members()
	if len(ms) == 0 {
		return errLeft
	}
	w.showDistrust()
	for _, m := range ms {
		w.useUnlessAsleep(m.ID)
	}
	is := &ms[0].Facts
	w.log.Info("replica joined", "replica", w.Name(), "pool", w.role.String(), "model", is.Model,
		"version", is.Version, "block_size", is.BlockSize, "blocks", is.Blocks, "ranks", len(ms),
		"events", is.Events.Endpoint)
	return nil
}

// unusable refuses an engine that answers wrongly. A decode engine with MoRIIO assumes for every request,
// even an unsplit one, that its blocks are elsewhere. It then answers from blocks that were never filled, so
// no request at all may go to such an engine. An engine whose store tells no adapters apart answers an
// adapter from the blocks of another model, and the other way round.
func (w *Watcher) unusable(f *replica.Facts) error {
	wanted := w.fleet.pub.connector.Load()
	switch {
	case f.Connector == "moriio" && wanted.Connector != "MoRIIOConnector":
		return errors.New("it has the MoRIIO connector, which answers from unfilled blocks what no MoRIIO router " +
			"sends: start it with kv_connector " + wanted.Connector)
	case wanted.NoAdapters && len(f.Adapters) > 0:
		return fmt.Errorf("it has the adapter %s, and %s answers adapters from the blocks of other models: start "+
			"it without adapters", f.Adapters[0], wanted.Connector)
	}
	return nil
}

// legsOnly reports whether the engine may get nothing but decode legs.
func (w *Watcher) legsOnly() bool {
	return w.role == replica.Decode && w.fleet.pub.connector.Load().NoPlain
}

// errLeft ends a watcher whose server has left the configuration. It appears in no log.
var errLeft = errors.New("it has left the configuration")

// probeAgain probes once more, now that the engine tells its metrics. If the probe fails, the known facts
// stay.
func (w *Watcher) probeAgain(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, ProbePatience*w.set.Load().probe)
	defer cancel()
	facts, err := w.client.Probe(asked)
	if err != nil || len(facts) == 0 || facts[0].Started == 0 {
		return
	}
	w.models.kv.locate(ctx, facts)
	if err := w.accept(facts); err == nil {
		w.streams.follow(ctx)
	}
}

// askAddresses asks where the blocks of an engine's ranks are, if engines of the other pool must be told: the
// bootstrap server of a prefill engine, or the ports at which prefill engines write into a decode engine.
func (w *Watcher) askAddresses(ctx context.Context, first, ranks int) ([]replica.KVAddress, error) {
	set := w.set.Load()
	if !set.locates() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, set.probe)
	defer cancel()
	if at := set.writtenAt; at[0] > 0 {
		return writtenAt(ctx, w.fleet.options(set), w.host, at, ranks)
	}
	port := cmp.Or(set.cfg.BootstrapPort, set.bootstrapPort)
	all, err := engine.Bootstrap(ctx, w.fleet.options(set), w.host, port, first, ranks)
	if err != nil {
		return nil, fmt.Errorf("its bootstrap server is not known: %w", err)
	}
	return all, nil
}

// writtenAt returns the address at which prefill engines write into a decode engine. A prefill engine stands
// still where nobody listens, and writes into rank 0 where there are several ranks.
func writtenAt(
	ctx context.Context, o engine.Options, host string, ports [2]int, ranks int,
) ([]replica.KVAddress, error) {
	if ranks != 1 {
		return nil, errors.New("it has several ranks, and prefill engines would write into the first")
	}
	if err := engine.Listens(ctx, o, host, ports[:]...); err != nil {
		return nil, fmt.Errorf("it does not listen for prefill engines (connector.handshake_port, notify_port): %w",
			err)
	}
	return []replica.KVAddress{{EngineID: writtenName(host, ports)}}, nil
}

// writtenName names the ports at which prefill engines write into a decode engine.
func writtenName(host string, ports [2]int) string {
	return net.JoinHostPort(host, strconv.Itoa(ports[0])) + "," + strconv.Itoa(ports[1])
}

// forgetTokens drops the token ids that the server's process made: a new process may have another tokenizer
// or template.
func (w *Watcher) forgetTokens() { w.fleet.opt.ForgetTokens(w.key.url) }

// warnOfAddresses warns if the server's name belongs to several machines, since only one machine is used.
// With a Dial and no LookUp it does nothing: the resolver then does not know the names.
func (w *Watcher) warnOfAddresses(ctx context.Context) {
	if w.fleet.opt.Dial != nil && w.fleet.opt.LookUp == nil {
		return
	}
	all, err := engine.Several(ctx, w.key.url, w.fleet.opt.LookUp)
	if err != nil || len(all) == 0 {
		return
	}
	seen, do := setup.Addresses(w.key.url, w.role.String(), all)
	w.log.Warn("the name of a replica has several addresses", "replica", w.Name(), "pool", w.role.String(),
		"seen", seen, "do", do)
}

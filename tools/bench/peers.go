package main

import (
	"context"
	"strings"

	"github.com/tandem-router/tandem/tools/peer"
	"github.com/tandem-router/tandem/tools/pinned"
)

// peers compares tandem with vllm-router, with the same engines. Only one of the two runs at a time, and each
// is started anew for each run, so that neither is slowed by background work of the other.
func (b *bench) peers(ctx context.Context) error {
	router, err := b.installPeer(ctx)
	if err != nil {
		return err
	}
	var f fleet
	defer f.stop()
	o := b.o
	if o.upstream == "sim" {
		o.upstream = binarySim
	}
	b.say("peers: starting 4 engines (%s)", o.upstream)
	engines, err := f.engines(ctx, o, 4)
	if err != nil {
		return err
	}
	if model, err = servedModel(engines[0]); err != nil {
		return err
	}
	for n := range o.runs {
		if err := b.peersRun(ctx, router, engines, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) installPeer(ctx context.Context) (peer.Router, error) {
	root, err := pinned.Cache()
	if err != nil {
		return peer.Router{}, err
	}
	return peer.Install(ctx, root, b.say)
}

// The names of the compared routers in figures.
const (
	ours   = "tandem"
	theirs = "peer"
)

// peersRun takes each figure of each router once. The order changes from run to run. The cost of net/http
// without a decision is measured too.
func (b *bench) peersRun(ctx context.Context, router peer.Router, engines []string, n int) error {
	theirs := contender{theirs, func(ctx context.Context, f *fleet, engines []string) (string, *process, error) {
		err := f.servePeer(ctx, router, b.o.peerFlags, engines)
		return f.peerAddr, f.peer, err
	}}
	if err := b.contest(ctx, inTurn([]contender{b.tandem(ours, b.o.tandem), theirs, bareFront}, n),
		engines); err != nil {
		return err
	}
	for _, r := range peerRatios {
		b.quotient(r.name, ours+r.of, theirs.name+r.of)
	}
	b.say("run %d of %d: %s", n+1, b.o.runs,
		b.latest("tandem_rps", "peer_rps", "peer_rps_ratio", "peer_streams_ratio",
			"peer_added_p50_ratio", "peer_cpu_ratio", "peer_rss_ratio", "bare_rps", "bare_request_cpu_us"))
	return nil
}

// peerRatios are tandem's figures divided by the peer's figures of the same run. of is the end of both names.
var peerRatios = []struct{ name, of string }{
	{"peer_rps_ratio", "_rps"},
	{"peer_streams_ratio", "_streams_per_s"},
	{"peer_added_p50_ratio", "_added_p50_us"},
	{"peer_cpu_ratio", "_request_cpu_us"},
	{"peer_event_cpu_ratio", "_event_cpu_us"},
	{"peer_rss_ratio", "_rss_mib"},
}

// quotient adds the latest sample of one figure divided by the latest sample of another.
func (b *bench) quotient(name, over, under string) {
	x, y := b.samples[over], b.samples[under]
	if len(x) > 0 && len(y) > 0 && y[len(y)-1] > 0 {
		b.add(name, x[len(x)-1]/y[len(y)-1])
	}
}

// servePeer starts vllm-router for the engines and returns when it answers. The first half of the engines
// prefill.
func (f *fleet) servePeer(
	ctx context.Context, router peer.Router, flags string, engines []string,
) (err error) {
	f.split(engines)
	if f.peerAddr, err = freeAddr(); err != nil {
		return err
	}
	metrics, err := freeAddr()
	if err != nil {
		return err
	}
	program, args, err := router.Command(f.peerAddr, metrics, urls(f.prefill), urls(f.decode),
		strings.Fields(flags)...)
	if err != nil {
		return err
	}
	if f.peer, err = f.start("vllm-router", program, args...); err != nil {
		return err
	}
	return f.awaitAnswer(ctx, f.peerAddr)
}

func urls(addrs []string) (all []string) {
	for _, addr := range addrs {
		all = append(all, "http://"+addr)
	}
	return all
}

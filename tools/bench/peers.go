package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/tools/peer"
	"tandem/tools/pinned"
)

// peers measures tandem beside vllm-router before the same engines. Only one of the two runs at a time, started anew for each run, so that neither pays for what
// the other does in the background.
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

// The names of the two in figures.
const (
	ours   = "tandem"
	theirs = "peer"
)

// peersRun takes each figure of both once; who goes first changes from run to run.
func (b *bench) peersRun(ctx context.Context, router peer.Router, engines []string, n int) error {
	direct, err := b.directP50(ctx, engines[0], engines[len(engines)/2])
	if err != nil {
		return err
	}
	order := []string{ours, theirs}
	if n%2 == 1 {
		order = []string{theirs, ours}
	}
	for _, name := range order {
		if err := b.contend(ctx, name, router, engines, direct); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, r := range peerRatios {
		b.quotient(r.name, ours+r.of, theirs+r.of)
	}
	b.say("run %d of %d: %s", n+1, b.o.runs, b.latest("tandem_rps", "peer_rps", "peer_rps_ratio", "peer_streams_ratio", "peer_added_p50_ratio", "peer_cpu_ratio", "peer_rss_ratio"))
	return nil
}

// peerRatios are tandem's figures over the peer's of the same run; of is the end of both figures' names.
var peerRatios = []struct{ name, of string }{
	{"peer_rps_ratio", "_rps"},
	{"peer_streams_ratio", "_streams_per_s"},
	{"peer_added_p50_ratio", "_added_p50_us"},
	{"peer_cpu_ratio", "_request_cpu_us"},
	{"peer_event_cpu_ratio", "_event_cpu_us"},
	{"peer_rss_ratio", "_rss_mib"},
}

// quotient adds the latest sample of a figure over that of another.
func (b *bench) quotient(name, over, under string) {
	x, y := b.samples[over], b.samples[under]
	if len(x) > 0 && len(y) > 0 && y[len(y)-1] > 0 {
		b.add(name, x[len(x)-1]/y[len(y)-1])
	}
}

// directP50 is what the two legs take without a front.
func (b *bench) directP50(ctx context.Context, prefill, decode string) (time.Duration, error) {
	ask, closeBoth, err := directAsker(prefill, decode, answerTokens)
	if err != nil {
		return 0, err
	}
	defer closeBoth()
	direct, err := drive(ctx, b.o.phase, []asker{ask})
	if err != nil {
		return 0, fmt.Errorf("both legs directly: %w", err)
	}
	b.add("peers_direct_p50_us", direct.p50().Seconds()*1e6)
	return direct.p50(), nil
}

// contend starts one of the two before the engines, loads it, and ends it.
func (b *bench) contend(ctx context.Context, name string, router peer.Router, engines []string, direct time.Duration) error {
	var f fleet
	defer f.stop()
	addr, p, err := b.startContender(ctx, &f, name, router, engines)
	if err != nil {
		return err
	}
	for _, stream := range []bool{false, true} {
		if _, err := b.load(ctx, addr, b.o.conns, b.o.phase/3, stream); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
	}
	before, err := countPrefills(f.prefill)
	if err != nil {
		return err
	}
	answers, err := b.loadContender(ctx, name, addr, p)
	if err != nil {
		return err
	}
	if err := b.splitShare(name, f.prefill, before, answers); err != nil {
		return err
	}
	single, err := b.load(ctx, addr, 1, b.o.phase, false)
	if err != nil {
		return err
	}
	b.add(name+"_added_p50_us", (single.p50()-direct).Seconds()*1e6)
	if name == ours && b.o.upstream == "sim" {
		return followsEvents(f.admin, len(engines))
	}
	return nil
}

func (b *bench) startContender(ctx context.Context, f *fleet, name string, router peer.Router, engines []string) (addr string, p *process, err error) {
	if name == ours {
		err := f.serve(ctx, b.o, engines)
		return f.front, f.tandem, err
	}
	err = f.servePeer(ctx, router, b.o.peerFlags, engines)
	return f.peerAddr, f.peer, err
}

// servePeer starts vllm-router before the engines, the first half of which prefill, and returns when it answers.
func (f *fleet) servePeer(ctx context.Context, router peer.Router, flags string, engines []string) (err error) {
	f.prefill, f.decode = engines[:len(engines)/2], engines[len(engines)/2:]
	if f.peerAddr, err = freeAddr(); err != nil {
		return err
	}
	metrics, err := freeAddr()
	if err != nil {
		return err
	}
	program, args, err := router.Command(f.peerAddr, metrics, urls(f.prefill), urls(f.decode), strings.Fields(flags)...)
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

// loadContender takes what many connections see, and what that costs the front.
func (b *bench) loadContender(ctx context.Context, name, addr string, p *process) (answers int, err error) {
	for _, kind := range []struct {
		stream    bool
		rate, cpu string
		units     int // that an answer's processor time is shared by
	}{{false, "_rps", "_request_cpu_us", 1}, {true, "_streams_per_s", "_event_cpu_us", streamTokens}} {
		before, err1 := p.cpu()
		r, err2 := b.load(ctx, addr, b.o.conns, b.o.phase, kind.stream)
		after, err3 := p.cpu()
		if err := errors.Join(err1, err2, err3); err != nil {
			return 0, err
		}
		b.add(name+kind.rate, r.rate())
		b.add(name+kind.cpu, (after-before).Seconds()*1e6/float64(r.answers*kind.units))
		answers += r.answers
	}
	rss, err := p.rss()
	b.add(name+"_rss_mib", rss)
	return answers, err
}

// splitShare adds how many prefills the engines did for each answer: who prefills less than once for each would be compared by something else.
func (b *bench) splitShare(name string, prefill []string, before float64, answers int) error {
	after, err := countPrefills(prefill)
	if err != nil || after < 0 {
		return err
	}
	share := (after - before) / float64(answers)
	b.add(name+"_split_share", share)
	if share < 0.99 {
		return fmt.Errorf("only %.2f prefills an answer: not every request was split", share)
	}
	return nil
}

// followsEvents makes sure that tandem has been doing all of its work: its indexes are those that the engines' events feed.
func followsEvents(admin string, engines int) error {
	metrics, err := scrape(admin)
	if err != nil {
		return err
	}
	live := 0
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "tandem_index_trust{") && strings.Contains(line, `state="live"`) && strings.HasSuffix(line, " 1\n") {
			live++
		}
	}
	if live != engines {
		return fmt.Errorf("tandem follows the events of %d engines, want %d", live, engines)
	}
	return nil
}

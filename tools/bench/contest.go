package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// contender is one of several fronts that are compared with the same engines.
type contender struct {
	name  string // prefix of its figures
	start func(ctx context.Context, f *fleet, engines []string) (addr string, p *process, err error)
}

// tandem is the contender that runs a binary of tandem.
func (b *bench) tandem(name, binary string) contender {
	return contender{name, func(ctx context.Context, f *fleet, engines []string) (string, *process, error) {
		o := b.o
		o.tandem = binary
		err := f.serve(ctx, o, engines)
		return f.front, f.tandem, err
	}}
}

// bareFront is the contender [bare]: net/http's server and the lean client, without a decision.
var bareFront = contender{"bare", func(ctx context.Context, f *fleet,
	engines []string,
) (string, *process, error) {
	f.split(engines)
	err := f.serveReference(ctx, "--lean")
	return f.refAddr, f.reference, err
}}

// compare compares tandem with a bare front, and with another build of tandem if one is named.
func (b *bench) compare(ctx context.Context) error {
	var f fleet
	defer f.stop()
	b.say("compare: starting 4 engines (%s)", b.o.upstream)
	engines, err := f.engines(ctx, b.o, 4)
	if err != nil {
		return err
	}
	if model, err = servedModel(engines[0]); err != nil {
		return err
	}
	all := []contender{b.tandem(ours, b.o.tandem), bareFront}
	if b.o.before != "" {
		all = append(all, b.tandem("before", b.o.before))
	}
	for n := range b.o.runs {
		if err := b.contest(ctx, inTurn(all, n), engines); err != nil {
			return err
		}
		b.say("run %d of %d", n+1, b.o.runs)
		for _, other := range all[1:] {
			b.ratios(other.name)
		}
	}
	return nil
}

// ratios adds tandem's latest figures divided by the figures of another contender.
func (b *bench) ratios(other string) {
	for _, of := range []string{
		"rps", "streams_per_s", "added_p50_us", "request_cpu_us", "event_cpu_us", "handoff_gap_us",
	} {
		b.quotient(other+"_"+of+"_ratio", ours+"_"+of, other+"_"+of)
	}
	b.say("over %s: %s", other,
		b.latest(other+"_rps_ratio", other+"_streams_per_s_ratio", other+"_added_p50_us_ratio",
			other+"_request_cpu_us_ratio", other+"_event_cpu_us_ratio"))
}

// inTurn returns all contenders. Each run begins with another one.
func inTurn(all []contender, n int) []contender {
	if n %= len(all); n > 0 {
		return slices.Concat(all[n:], all[:n])
	}
	return all
}

// contest takes each figure of each contender once. Each contender is started anew and runs alone, so that
// none is slowed by background work of another.
func (b *bench) contest(ctx context.Context, all []contender, engines []string) error {
	direct, err := b.directP50(ctx, engines[0], engines[len(engines)/2])
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := b.contend(ctx, c, engines, direct); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// directP50 is the median time of the two legs without a front.
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

// contend starts a contender before the engines, loads it, and ends it.
func (b *bench) contend(ctx context.Context, c contender, engines []string, direct time.Duration) error {
	var f fleet
	defer f.stop()
	addr, p, err := c.start(ctx, &f, engines)
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
	answers, err := b.loadContender(ctx, c.name, addr, p, f.admin)
	if err != nil {
		return err
	}
	if err := b.splitShare(c.name, f.prefill, before, answers); err != nil {
		return err
	}
	if err := b.loadOne(ctx, c.name, addr, &f, direct); err != nil {
		return err
	}
	if f.tandem != nil && b.o.upstream == "sim" {
		return followsEvents(f.admin, len(engines))
	}
	return nil
}

// loadOne measures latency with one connection, and reads tandem's own measurement of the gap between the
// legs.
func (b *bench) loadOne(ctx context.Context, name, addr string, f *fleet, direct time.Duration) error {
	var before, after []byte
	if f.tandem != nil {
		before, _ = scrape(f.admin)
	}
	single, err := b.load(ctx, addr, 1, b.o.phase, false)
	if err != nil {
		return err
	}
	b.add(name+"_added_p50_us", (single.p50()-direct).Seconds()*1e6)
	if f.tandem != nil {
		after, _ = scrape(f.admin)
	}
	if gap, ok := quantile(before, after, "tandem_handoff_gap_seconds", 0.5); ok {
		b.add(name+"_handoff_gap_us", gap*1e6)
	}
	return nil
}

// loadContender measures throughput with many connections, and the front's CPU time. admin is tandem's admin
// address for CPU profiles.
func (b *bench) loadContender(
	ctx context.Context, name, addr string, p *process, admin string,
) (answers int, err error) {
	for _, kind := range []struct {
		stream    bool
		rate, cpu string
		units     int // by which the CPU time of an answer is divided
	}{{false, "_rps", "_request_cpu_us", 1}, {true, "_streams_per_s", "_event_cpu_us", streamTokens}} {
		profiled := b.profile(admin, name+kind.rate)
		before, err1 := p.cpu()
		r, err2 := b.load(ctx, addr, b.o.conns, b.o.phase, kind.stream)
		after, err3 := p.cpu()
		if err := errors.Join(err1, err2, err3, profiled()); err != nil {
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

// splitShare adds the engines' prefills per answer. A router with fewer than one prefill per answer would do
// different work, and the comparison would be unfair.
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

// followsEvents makes sure that tandem did all of its work: it must follow the events of all engines.
func followsEvents(admin string, engines int) error {
	metrics, err := scrape(admin)
	if err != nil {
		return err
	}
	live := 0
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "tandem_index_trust{") && strings.Contains(line, `state="live"`) &&
			strings.HasSuffix(line, " 1\n") {
			live++
		}
	}
	if live != engines {
		return fmt.Errorf("tandem follows the events of %d engines, want %d", live, engines)
	}
	return nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	answerTokens = 2  // of an answer that is not streamed
	streamTokens = 64 // of a stream, one event each
)

// front loads tandem and the reference in turn.
func (b *bench) front(ctx context.Context) error {
	var f fleet
	defer f.stop()
	b.say("front: starting 4 engines (%s), tandem and the reference", b.o.upstream)
	engines, err := f.engines(ctx, b.o, 4)
	if err != nil {
		return err
	}
	if model, err = servedModel(engines[0]); err != nil {
		return err
	}
	if err := f.serve(ctx, b.o, engines); err != nil {
		return err
	}
	if err := f.serveReference(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx, &f); err != nil {
		return err
	}
	for n := range b.o.runs {
		if err := b.frontRun(ctx, &f, n); err != nil {
			return err
		}
	}
	return nil
}

// warm sends some load until connections, pools and learned speeds are stable.
func (b *bench) warm(ctx context.Context, f *fleet) error {
	for _, addr := range []string{f.front, f.refAddr} {
		for _, stream := range []bool{false, true} {
			if _, err := b.load(ctx, addr, b.o.conns, time.Second, stream); err != nil {
				return fmt.Errorf("warming up %s: %w", addr, err)
			}
		}
	}
	return nil
}

// frontRun takes each figure once. Figures that will be compared are measured one after the other.
func (b *bench) frontRun(ctx context.Context, f *fleet, n int) error {
	before, err := countPrefills(f.prefill)
	if err != nil {
		return err
	}
	answers, err := b.loadFront(ctx, "front", f.front, f.tandem)
	if err != nil {
		return fmt.Errorf("tandem: %w", err)
	}
	if after, err := countPrefills(f.prefill); err == nil && before >= 0 {
		b.add("front_split_share", (after-before)/float64(answers))
	}
	if _, err := b.loadFront(ctx, "reference", f.refAddr, f.reference); err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	if err := b.single(ctx, f); err != nil {
		return err
	}
	for _, name := range []string{"rps", "streams_per_s", "event_cpu_us", "added_p50_us"} {
		b.ratio("front_"+name, "reference_"+name)
	}
	b.say("run %d of %d: %s", n+1, b.o.runs,
		b.latest("front_rps", "reference_rps", "front_streams_per_s", "reference_streams_per_s",
			"front_event_cpu_us", "front_added_p50_us", "reference_added_p50_us", "handoff_gap_us",
			"front_split_share"))
	return nil
}

// loadFront measures one front with many connections.
func (b *bench) loadFront(ctx context.Context, name, addr string, p *process) (answers int, err error) {
	plain, err := b.load(ctx, addr, b.o.conns, b.o.phase, false)
	if err != nil {
		return 0, err
	}
	b.add(name+"_rps", plain.rate())
	b.add(name+"_p50_ms", plain.p50().Seconds()*1e3)
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	streams, err := b.load(ctx, addr, b.o.conns, b.o.phase, true)
	if err != nil {
		return 0, err
	}
	after, err := p.cpu()
	if err != nil {
		return 0, err
	}
	b.add(name+"_streams_per_s", streams.rate())
	b.add(name+"_event_cpu_us", (after-before).Seconds()*1e6/float64(streams.answers*streamTokens))
	return plain.answers + streams.answers, nil
}

func (b *bench) load(
	ctx context.Context, addr string, conns int, d time.Duration, stream bool,
) (*result, error) {
	tokens := answerTokens
	if stream {
		tokens = streamTokens
	}
	askers, closeAll, err := frontAskers(addr, conns, tokens, stream)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	return drive(ctx, d, askers)
}

// single measures with one connection: each front's median minus the median of the two legs without a front.
// It also reads tandem's own measurement of the gap between the legs.
func (b *bench) single(ctx context.Context, f *fleet) error {
	ask, closeBoth, err := directAsker(f.prefill[0], f.decode[0], answerTokens)
	if err != nil {
		return err
	}
	defer closeBoth()
	direct, err := drive(ctx, b.o.phase, []asker{ask})
	if err != nil {
		return fmt.Errorf("both legs directly: %w", err)
	}
	b.add("direct_p50_us", direct.p50().Seconds()*1e6)
	before, _ := scrape(f.admin)
	tandem, err := b.load(ctx, f.front, 1, b.o.phase, false)
	if err != nil {
		return fmt.Errorf("tandem: %w", err)
	}
	after, _ := scrape(f.admin)
	if gap, ok := quantile(before, after, "tandem_handoff_gap_seconds", 0.5); ok {
		b.add("handoff_gap_us", gap*1e6)
	}
	plain, err := b.load(ctx, f.refAddr, 1, b.o.phase, false)
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	b.add("front_added_p50_us", (tandem.p50()-direct.p50()).Seconds()*1e6)
	b.add("reference_added_p50_us", (plain.p50()-direct.p50()).Seconds()*1e6)
	return nil
}

// servedModel asks an engine for the name of its model.
func servedModel(addr string) (string, error) {
	body, err := get("http://" + addr + "/v1/models")
	if err != nil {
		return "", err
	}
	_, rest, ok := bytes.Cut(body, []byte(`"id":`))
	rest = bytes.TrimLeft(rest, " ")
	parts := bytes.SplitN(rest, []byte{'"'}, 3)
	if !ok || len(parts) < 3 {
		return "", fmt.Errorf("/v1/models has no id: %q", body)
	}
	return string(parts[1]), nil
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

func scrape(addr string) ([]byte, error) { return get("http://" + addr + "/metrics") }

// countPrefills sums the finished requests of the prefill replicas: a front that splits every request adds
// one per request. It returns -1 if a replica does not report them.
func countPrefills(addrs []string) (float64, error) {
	sum, found := 0.0, false
	for _, addr := range addrs {
		body, err := scrape(addr)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(body)) {
			if !strings.HasPrefix(line, "vllm:request_success_total{") {
				continue
			}
			fields := strings.Fields(line)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err == nil {
				sum, found = sum+v, true
			}
		}
	}
	if !found {
		return -1, nil
	}
	return sum, nil
}

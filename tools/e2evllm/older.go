package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// single is one engine of vLLM 0.20.0: its events are arrays, a reply to a replay has three frames, and it
// does not report its event addresses.
var single = &fleet{"single", func() []*engine {
	return []*engine{{Name: "o0", Role: alone, Version: "0.20.0", Blocks: prefillBlocks}}
}}

// older tests the exchange between router and engine without a transfer: the doctor's questions, prompts by
// render and by /tokenize, events, replays for a new router, and a restarted engine.
func older(ctx context.Context, s *stage) error {
	e := s.engines[0]
	return inOrder(ctx,
		step{"the doctor", func() error { return s.consultOlder(ctx, e) }},
		step{"its metrics", func() error { return e.tells(ctx, metricNames) }},
		step{"prompts by render", func() error { return s.playWhole(ctx, e, "render", e.url()) }},
		step{"prompts by /tokenize", func() error { return s.playWithoutRender(ctx, e) }},
		step{"its events", func() error { return e.speaks(ctx, "array", 3) }},
		step{"a new router", func() error { return s.beginAgain(ctx, e, s.beginRouter) }},
		step{"a new engine", func() error { return s.beginAgain(ctx, e, s.beginEngine) }},
	)
}

// step is a part of an act. Later steps need it.
type step struct {
	name string
	do   func() error
}

func inOrder(ctx context.Context, steps ...step) error {
	for _, st := range steps {
		begun := time.Now()
		if err := st.do(); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		say("%s: held, %.1f s", st.name, time.Since(begun).Seconds())
	}
	return nil
}

// metricNames are the engine metrics that Tandem needs, without labels.
var metricNames = []string{
	"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason",
	"vllm:kv_cache_usage_perc", "vllm:cache_config_info",
	"vllm:num_preemptions_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
	"process_start_time_seconds",
}

// tells checks that the engine's /metrics has these names.
func (e *engine) tells(ctx context.Context, names []string) error {
	body, err := get(ctx, e.url()+"/metrics")
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		if !strings.Contains(string(body), "\n"+name+"{") && !strings.Contains(string(body), "\n"+name+" ") {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("/metrics of %s lacks %s", e.Name, strings.Join(missing, ", "))
	}
	return nil
}

// finding is a finding of the doctor, with the fields that the suite reads.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Seen   string `json:"seen"`
}

// consultOlder checks that the doctor cannot read the event addresses, and that with the addresses in the
// configuration it finds nothing worse than an old version.
func (s *stage) consultOlder(ctx context.Context, e *engine) error {
	if _, err := get(ctx, e.url()+"/kv_event_sources"); err == nil || !strings.Contains(err.Error(), "404") {
		return fmt.Errorf("/kv_event_sources, which 0.30 brought, is no 404: %w",
			cmp.Or(err, errors.New("it is answered")))
	}
	if err := s.diagnosis(ctx, []string{"events-disabled"}, e.url()); err != nil {
		return err
	}
	file, err := s.configure("older-doctor", "local: always")
	if err != nil {
		return err
	}
	return s.diagnosis(ctx, nil, "--config", file)
}

// diagnosis requires the doctor to fail these checks and to warn only about the version.
func (s *stage) diagnosis(ctx context.Context, failing []string, args ...string) error {
	out, err := exec.CommandContext(ctx, s.tandem,
		append([]string{"doctor", "--quiet", "--json"}, args...)...).Output()
	var report struct{ Findings []finding }
	if bad := json.Unmarshal(out, &report); bad != nil {
		return fmt.Errorf("tandem doctor: %w: %s (%w)", err, out, bad)
	}
	return errors.Join(checks(report.Findings, "failed", failing),
		checks(report.Findings, "warning", []string{"engine-version"}))
}

// checks requires the findings of a status to be these, each once or, with several engines, more often.
func checks(all []finding, status string, want []string) error {
	var got []string
	for _, f := range all {
		if f.Status == status && !slices.Contains(got, f.Check) {
			got = append(got, f.Check)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("tandem doctor: %s are %q, not %q: %+v", status, got, want, all)
	}
	return nil
}

// configureWhole writes a configuration without splits, with the engine at this URL.
func (s *stage) configureWhole(name string, e *engine, url string) (string, error) {
	text := fmt.Sprintf(
		"pools:\n  decode: {replicas: [%s]}\nlocal: always\n"+
			"response: {headers: true}\ndecisions: {ring: 20000}\n",
		e.memberAt(url),
	)
	file := filepath.Join(s.work, "tandem-"+name+".yaml")
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// olderRequests is the number of requests compared for each source of a prompt's ids.
const olderRequests = 60

// playWhole compares answers to requests that a router sends whole to the engine at this URL with the
// engine's own, one at a time. source is the required source of the ids of text prompts.
func (s *stage) playWhole(ctx context.Context, e *engine, source, url string) error {
	file, err := s.configureWhole(source, e, url)
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	ph := phase{
		name: e.Version + ", ids by " + source, requests: olderRequests, workers: 1, seed: s.seed + 20,
		predicted: 0.99, kinds: everyKind,
	}
	begun := time.Now()
	results := s.compareAll(ctx, r, ph)
	took := time.Since(begun)
	idle, errIdle := s.awaitIdle(ctx, idleLimit)
	records, errRecords := readRecords(ctx, r)
	if err := errors.Join(ctx.Err(), errIdle, errRecords, r.end()); err != nil {
		return err
	}
	refused, err := e.refusesToo(ctx, results)
	if err != nil {
		return err
	}
	sources := forgetEstimates(records)
	tellZeros(results, records)
	v := judge(results, records)
	v.print(os.Stdout, ph, took, idle)
	fmt.Printf("  ids          %v\n  refused      %q, by the engine too\n\n", sources, refused)
	return errors.Join(v.whole(ph.predicted), has(sources, source))
}

// refusesToo removes differences that are refusals of features which the version lacks. The engine must
// refuse the direct request in the same words. Only a few differences may be refusals.
func (e *engine) refusesToo(ctx context.Context, results []result) (kinds []string, err error) {
	for i := range results {
		r := &results[i]
		if !strings.HasPrefix(r.diff, "refused with 400") {
			continue
		}
		alone, err := ask(ctx, e.url(), r.path, r.body)
		if err != nil {
			return kinds, err
		}
		if r.diff == fmt.Sprintf("refused with %d: %.300s", alone.status, alone.refusal) {
			r.diff, kinds = "", append(kinds, r.kind)
		}
	}
	if len(kinds) > len(results)/10 {
		err = fmt.Errorf("%d of %d requests are refused: %q", len(kinds), len(results), kinds)
	}
	return kinds, err
}

// tellZeros sets missing counts to 0: version 0.20.0 omits cached_tokens if it is 0, which looks to a router
// like an engine that never reports it. With several samples it remains unknown.
func tellZeros(results []result, records []record) {
	several := map[string]bool{}
	for _, r := range results {
		several[r.id] = r.body["n"] != nil
	}
	for i := range records {
		if r := &records[i]; r.Delivered < 0 && !several[r.ID] {
			r.Delivered = 0
		}
	}
}

// forgetEstimates counts the sources of the ids. It removes the predictions for prompts with unknown ids from
// records. The index matches such prompts by chunks of text, and predicts fewer tokens than the engine has.
func forgetEstimates(records []record) map[string]int {
	sources := map[string]int{}
	for i := range records {
		sources[records[i].Tokenizer]++
		if records[i].Tokenizer == "estimate" {
			records[i].Captured = -1
		}
	}
	return sources
}

func has(sources map[string]int, source string) error {
	if sources[source] == 0 {
		return fmt.Errorf("no prompt had its ids from %s: %v", source, sources)
	}
	return nil
}

// whole is the verdict on a phase in which nothing may be split.
func (v *verdict) whole(predicted float64) error {
	var errs []error
	if v.different > 0 {
		errs = append(errs, fmt.Errorf("%d of %d answers differ", v.different, v.requests))
	}
	if v.modes["split"] > 0 || v.modes["local"] == 0 || v.modes["unsplit"] == 0 {
		errs = append(errs, fmt.Errorf("placed %v: local and un-split are wanted, split is not", v.modes))
	}
	if v.share() < predicted {
		errs = append(errs,
			fmt.Errorf("%d of %d predictions were exact, fewer than %.0f %%", v.exact, v.known-v.unforeseen,
				100*predicted))
	}
	return errors.Join(errs...)
}

// playWithoutRender plays with the engine as one without render, so that the router asks its /tokenize.
func (s *stage) playWithoutRender(ctx context.Context, e *engine) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: withoutRender(e.url()), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	err = s.playWhole(ctx, e, "tokenize", "http://"+l.Addr().String())
	if errServed := errors.Join(server.Close(), <-served); !errors.Is(errServed, http.ErrServerClosed) {
		err = errors.Join(err, errServed)
	}
	return err
}

// withoutRender passes everything on to the engine except render, which gets 404.
func withoutRender(engine string) http.Handler {
	to, err := url.Parse(engine)
	if err != nil {
		panic(err) // it is of our own making
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/render") {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

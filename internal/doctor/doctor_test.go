package doctor

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sound returns the options of a server without faults.
func sound() enginesim.Options {
	return enginesim.Options{ZeroLatency: true, EventsEndpoint: "tcp://*:0", Adapters: []string{"ad"}}
}

func with(change func(*enginesim.Options)) enginesim.Options {
	o := sound()
	change(&o)
	return o
}

// up starts a server on a real socket.
func up(t *testing.T, o enginesim.Options) *enginesim.Server {
	t.Helper()
	s, err := enginesim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// pools returns a configuration with these servers in a prefill and a decode pool.
func pools(prefill, decode []*enginesim.Server) *config.Config {
	c := config.Default()
	for i, s := range prefill {
		c.Pools.Prefill.Replicas = append(c.Pools.Prefill.Replicas,
			config.Replica{Name: "p" + string(rune('0'+i)), URL: s.URL()})
	}
	for i, s := range decode {
		c.Pools.Decode.Replicas = append(c.Pools.Decode.Replicas,
			config.Replica{Name: "d" + string(rune('0'+i)), URL: s.URL()})
	}
	return c
}

// pair returns a fleet of one prefill server with options p and a sound decode server.
func pair(t *testing.T, p enginesim.Options) (*config.Config, *enginesim.Server) {
	t.Helper()
	s := up(t, p)
	return pools([]*enginesim.Server{s}, []*enginesim.Server{up(t, sound())}), s
}

func examine(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bad returns the findings with status warning or failed, as "status check subject".
func bad(r *Report) []string {
	var all []string
	for _, f := range r.Findings {
		if f.Status == Warning || f.Status == Failed {
			all = append(all, string(f.Status)+" "+f.Check+" "+f.Subject)
		}
	}
	return all
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Text(&b, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// want checks that exactly the findings in all are bad, and that every bad finding has an explanation.
func want(t *testing.T, r *Report, all ...string) {
	t.Helper()
	if got := bad(r); !slices.Equal(got, all) {
		t.Errorf("got bad findings %q\nwant %q\n%s", got, all, text(t, r))
	}
	for _, f := range r.Findings {
		explained := f.Why != "" && f.Do != ""
		if troubled := f.Status == Warning || f.Status == Failed; f.Seen == "" || f.Title == "" ||
			explained != troubled {
			t.Errorf("got %+v; want a title, what was seen, and an explanation only for a bad finding", f)
		}
	}
}

func find(t *testing.T, r *Report, check, subject string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Subject == subject {
			return f
		}
	}
	t.Fatalf("no finding of %s for %s", check, subject)
	return Finding{}
}

// closed is a port at which no process listens. A server that asks for any free port does not get this one.
const closed = "1"

// A fleet without faults passes every check. Each check has its objects: ranks, old events, adapters.
func TestHealthy(t *testing.T) {
	t.Parallel()
	p := up(t,
		with(func(o *enginesim.Options) { o.DPRanks = 2; o.Topic = "kv@p"; o.Adapters = []string{"lora"} }))
	d := up(t, sound())
	r := examine(t, Options{Config: pools([]*enginesim.Server{p}, []*enginesim.Server{d})})
	want(t, r)
	if r.Count.Skipped > 0 || !r.Fit() || r.Count.OK != len(r.Findings) {
		t.Errorf("got counts %+v and fit %v, want that all checks ran and passed\n%s", r.Count, r.Fit(), text(t, r))
	}
	for _, s := range []*enginesim.Server{p, d} {
		if n := s.AdminCalls(); len(n) > 0 {
			t.Errorf("got calls of admin paths %v, want none", n)
		}
		if s.HeldBlocks() > 0 || s.OpenRequests() > 0 {
			t.Errorf("got %d held blocks and %d open requests, want none", s.HeldBlocks(), s.OpenRequests())
		}
	}
}

// Each check finds its fault, and the report has exactly the expected findings.
func TestEachCheckFindsItsTrouble(t *testing.T) {
	const nowhere = "tcp://127.0.0.1:" + closed
	for _, c := range []struct {
		check string
		o     enginesim.Options
		set   func(c *config.Config, s *enginesim.Server) // the operator's settings
		want  []string                                    // default: failed CHECK prefill p0
		seen  string                                      // words of what was seen
		do    string                                      // words of what to do
	}{
		{
			check: "engine-unreachable", o: sound(), seen: "refused", do: "is running and listening",
			set: func(c *config.Config, _ *enginesim.Server) {
				c.Pools.Prefill.Replicas[0].URL = "http://127.0.0.1:" + closed
			},
		},
		{
			check: "engine-unreachable", o: with(func(o *enginesim.Options) { o.APIKey = "k" }), seen: "401",
			do: "pools.prefill.api_key",
		},
		{
			check: "engine-version", o: with(func(o *enginesim.Options) { o.Version = "0.20.0" }), seen: "0.20.0",
			do: "0.30",
			set: func(c *config.Config, s *enginesim.Server) {
				events, replay := s.Endpoints(0)
				c.Pools.Prefill.Replicas[0].Events = config.Events{Endpoint: events, Replay: replay}
			},
			want: []string{"warning engine-version prefill p0", "failed version-mismatch fleet"},
		},
		{
			check: "metrics-missing", o: with(func(o *enginesim.Options) { o.Wrong.NoStats = true }),
			seen: "none of vLLM's series", do: "--disable-log-stats",
			want: []string{"warning metrics-missing prefill p0"},
		},
		{
			check: "connector-missing", o: with(func(o *enginesim.Options) { o.Wrong.NoConnector = true }),
			seen: "no series of nixl", do: `"kv_role":"kv_producer"`,
			want: []string{"warning connector-missing prefill p0", "failed handoff-failed fleet"},
		},
		{
			check: "test-prompt", seen: "500", do: "log",
			o: with(func(o *enginesim.Options) { o.Faults = []enginesim.Fault{{Kind: "fail", Count: -1}} }),
		},
		{
			check: "prefix-caching-off", o: with(func(o *enginesim.Options) { o.Core.NoPrefixCaching = true }),
			seen: "False", do: "--no-enable-prefix-caching",
		},
		{
			check: "usage-details-missing", o: with(func(o *enginesim.Options) { o.NoUsageDetails = true }),
			do:   "--enable-prompt-tokens-details",
			want: []string{"warning usage-details-missing prefill p0"},
		},
		{
			check: "orca-missing", o: with(func(o *enginesim.Options) { o.NoORCA = true }),
			do:   "endpoint-load-metrics",
			want: []string{"warning orca-missing prefill p0"},
		},
		{
			check: "events-disabled", o: with(func(o *enginesim.Options) { o.EventsEndpoint = "" }),
			seen: "events are off", do: `"enable_kv_cache_events":true,"publisher":"zmq"`,
		},
		{
			check: "events-disabled", o: sound(), seen: "pools.prefill.index: off", do: "index: events",
			set:  func(c *config.Config, _ *enginesim.Server) { c.Pools.Prefill.Index = config.IndexOff },
			want: []string{"warning events-disabled prefill p0"},
		},
		{
			check: "events-disabled", o: with(func(o *enginesim.Options) { o.Version = "0.20.0" }),
			seen: "no /kv_event_sources to ask", do: "events: {endpoint: tcp://127.0.0.1:5557",
			want: []string{
				"warning engine-version prefill p0", "failed events-disabled prefill p0", "failed version-mismatch fleet",
			},
		},
		{
			check: "publisher-null", o: with(func(o *enginesim.Options) { o.Wrong.NullPublisher = true }),
			seen: `"null"`, do: `"publisher":"zmq"`,
		},
		{
			check: "wrong-bind", seen: "connects instead of listening", do: "tcp://*:5557",
			o: with(
				func(o *enginesim.Options) { o.EventsEndpoint, o.Wrong.StrictBind = "tcp://0.0.0.0:"+closed, true },
			),
		},
		{
			check: "port-collision", o: with(func(o *enginesim.Options) { o.DPRanks = 2; o.NoReplay = true }),
			seen: "is also an address of", do: "more ports",
			set: func(c *config.Config, _ *enginesim.Server) {
				c.Pools.Prefill.Replicas[0].Events = config.Events{
					Endpoint: "tcp://127.0.0.1:7557", Replay: "tcp://127.0.0.1:7558",
				}
			},
			want: []string{"failed port-collision prefill p0/dp0", "failed port-collision prefill p0/dp1"},
		},
		{
			check: "events-unreachable", o: sound(), seen: "refused", do: "ss -ltn",
			set: func(c *config.Config, _ *enginesim.Server) { c.Pools.Prefill.Replicas[0].Events.Endpoint = nowhere },
		},
		{
			check: "events-unreachable", o: sound(), seen: "no publisher", do: "exchange",
			set: func(c *config.Config, s *enginesim.Server) {
				_, replay := s.Endpoints(0)
				c.Pools.Prefill.Replicas[0].Events.Endpoint = replay
			},
		},
		{
			check: "events-unreachable", o: sound(), seen: "does not speak ZeroMQ", do: "HTTP",
			set: func(c *config.Config, s *enginesim.Server) {
				c.Pools.Prefill.Replicas[0].Events.Endpoint = strings.Replace(s.URL(), "http", "tcp", 1)
			},
		},
		{
			check: "wrong-topic", o: with(func(o *enginesim.Options) { o.Topic = "kv@p" }),
			seen: `"kv-events", and "kv@p" comes`, do: `topic: "kv@p"`,
			set: func(c *config.Config, s *enginesim.Server) {
				events, replay := s.Endpoints(0)
				c.Pools.Prefill.Replicas[0].Events = config.Events{Endpoint: events, Replay: replay, Topic: "kv-events"}
			},
		},
		{
			check: "events-silent", seen: "nothing came", do: "running process",
			o: with(func(o *enginesim.Options) {
				o.Faults = []enginesim.Fault{{Kind: "drop_events", Count: 1000}}
				o.NoReplay = true
			}),
			want: []string{"failed events-silent prefill p0", "warning replay-missing prefill p0"},
		},
		{
			check: "events-silent", seen: "came by a replay alone", do: "drops messages",
			o: with(func(o *enginesim.Options) {
				o.Faults = []enginesim.Fault{{
					Kind:  "drop_events",
					Count: 1000,
				}}
			}),
			want: []string{"warning events-silent prefill p0"},
		},
		{
			check: "replay-missing", o: with(func(o *enginesim.Options) { o.NoReplay = true }),
			do:   `"replay_endpoint":"tcp://*:5657"`,
			want: []string{"warning replay-missing prefill p0"},
		},
		{
			check: "replay-silent", o: with(func(o *enginesim.Options) { o.Wrong.TellReplay = nowhere }),
			seen: "refused",
		},
		{
			check: "block-size", o: with(func(o *enginesim.Options) { o.Wrong.TellBlockSize = 8 }),
			seen: "8 tokens a block, and its events have 16", do: "goes by them",
			want: []string{"warning block-size prefill p0"},
		},
		{
			check: "block-size", o: sound(), seen: "pools.prefill.block_size is 64", do: "remove",
			set:  func(c *config.Config, _ *enginesim.Server) { c.Pools.Prefill.BlockSize = 64 },
			want: []string{"warning block-size prefill p0"},
		},
		{
			check: "block-size-mismatch", o: with(func(o *enginesim.Options) { o.Core.BlockSize = 32 }),
			seen: "32 (prefill p0)", do: "--block-size",
			want: []string{"failed block-size-mismatch fleet"},
		},
		{
			check: "clock-skew", o: with(func(o *enginesim.Options) { o.Wrong.ClockSkew = -time.Hour }),
			seen: "1h0m0s behind", do: "NTP",
			want: []string{"warning clock-skew prefill p0"},
		},
		{
			check: "salt-domain", o: with(func(o *enginesim.Options) { o.Wrong.NoSalt = true }), seen: "0 of 4 blocks",
			do:   "0.17",
			want: []string{"warning salt-domain prefill p0"},
		},
		{
			check: "kv-type-mismatch", o: with(func(o *enginesim.Options) { o.Wrong.CacheDType = "fp8" }),
			seen: "fp8 (prefill p0)", do: "--kv-cache-dtype",
			want: []string{"failed kv-type-mismatch fleet"},
		},
		{
			check: "model-mismatch", o: with(func(o *enginesim.Options) { o.Model = "other" }),
			seen: "other (prefill p0), sim (decode d0)", do: "--served-model-name",
			want: []string{"failed model-mismatch fleet"},
		},
		{
			check: "version-mismatch", o: with(func(o *enginesim.Options) { o.Version = "0.31.0" }),
			seen: "0.31.0 (prefill p0)", do: "one version",
			want: []string{"failed version-mismatch fleet"},
		},
		{
			check: "max-model-len-mismatch", o: with(func(o *enginesim.Options) { o.Core.MaxModelLen = 2048 }),
			seen: "2048 (prefill p0), 32768 (decode d0)", do: "--max-model-len",
			want: []string{"warning max-model-len-mismatch fleet"},
		},
		{
			check: "adapter-mismatch", o: with(func(o *enginesim.Options) { o.Adapters = []string{"ad=/other/ad"} }),
			seen: "/other/ad (prefill p0)", do: "adapter_folders",
			want: []string{"warning adapter-mismatch fleet"},
		},
		{
			check: "tokenizer-drift", o: with(func(o *enginesim.Options) { o.Wrong.Tokenizer = "another" }),
			seen: "part at position", do: "--chat-template",
			want: []string{"failed tokenizer-drift fleet"},
		},
	} {
		t.Run(c.check, func(t *testing.T) {
			t.Parallel()
			cfg, s := pair(t, c.o)
			cfg.Scoring.Links.Host = 100_000_000 // handoffs are slow on a busy machine; TestSlowLinks tests speeds
			if c.set != nil {
				c.set(cfg, s)
			}
			r := examine(t, Options{Config: cfg})
			if c.want == nil {
				c.want = []string{"failed " + c.check + " prefill p0"}
			}
			want(t, r, c.want...)
			if r.Fit() == slices.ContainsFunc(c.want, func(w string) bool { return strings.HasPrefix(w, "failed") }) {
				t.Errorf("got fit %v, want false only if a check failed", r.Fit())
			}
			at := slices.IndexFunc(r.Findings,
				func(f Finding) bool { return f.Check == c.check && (f.Status == Failed || f.Status == Warning) })
			if at < 0 {
				return // want has reported it
			}
			if f := r.Findings[at]; !strings.Contains(f.Seen, c.seen) || !strings.Contains(f.Do, c.do) {
				t.Errorf("got seen %q, want %q in it; got do %q, want %q in it", f.Seen, c.seen, f.Do, c.do)
			}
		})
	}
}

// The configuration exchanges the publishers of two engines. Every address answers, but every prediction is
// wrong.
func TestHashDomainCrossed(t *testing.T) {
	t.Parallel()
	a, b := up(t, sound()), up(t, sound())
	cfg := pools([]*enginesim.Server{a, b}, []*enginesim.Server{up(t, sound())})
	for i, other := range []*enginesim.Server{b, a} {
		events, replay := other.Endpoints(0)
		cfg.Pools.Prefill.Replicas[i].Events = config.Events{Endpoint: events, Replay: replay}
	}
	// The prompts are sent in parallel, so that each stream has events.
	r := examine(t, Options{Config: cfg})
	want(t, r, "failed hash-domain prefill p0", "failed hash-domain prefill p1")
	if f := find(t, r, "hash-domain",
		"prefill p0"); !strings.Contains(f.Seen, "tells of what was sent to prefill p1") {
		t.Errorf("got seen %q, want that p0's stream has the blocks of prefill p1", f.Seen)
	}
}

// A replay that begins late is reported as short, unless it has as many blocks as the cache holds.
func TestReplayShort(t *testing.T) {
	for _, c := range []struct {
		name   string
		blocks int
		want   []string
	}{
		{"short", 8192, []string{"warning replay-short prefill p0"}},
		{"long enough", 12, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, s := pair(t, with(func(o *enginesim.Options) { o.Wrong.BufferSteps = 3; o.Core.Blocks = c.blocks }))
			for range 5 { // batches 0 to 14 at least
				examine(t, Options{URLs: []string{s.URL()}})
			}
			cfg.Pools.Decode.Replicas = nil // the decode server has a larger cache, and so a longer longest prompt
			want(t, examine(t, Options{Config: cfg}), c.want...)
		})
	}
}

// In a passive examination no completion reaches an engine. The doctor still reports everything that it can
// find without completions.
func TestPassive(t *testing.T) {
	t.Parallel()
	cfg, s := pair(t, with(func(o *enginesim.Options) { o.Topic = "kv@p" }))
	events, replay := s.Endpoints(0)
	examine(t, Options{URLs: []string{s.URL()}}) // some history
	before := s.Calls()["/v1/completions"]
	cfg.Pools.Prefill.Replicas[0].Events = config.Events{Endpoint: events, Replay: replay, Topic: "other"}
	r := examine(t, Options{Config: cfg, Passive: true})
	want(t, r, "failed wrong-topic prefill p0")
	if after := s.Calls()["/v1/completions"]; after != before {
		t.Errorf("got %d completions, want none", after-before)
	}
	if f := find(t, r, "hash-domain", "decode d0"); f.Status != Skipped || !r.Passive {
		t.Errorf("got passive %v and finding %+v, want a skipped check", r.Passive, f)
	}
	if f := find(t, r, "block-size", "prefill p0"); f.Status != OK ||
		!strings.Contains(f.Seen, "in its events") {
		t.Errorf("got %+v, want OK with the block size from the events", f)
	}
}

// Options.Timeout limits the whole examination, also with an engine that does not answer.
func TestTimeUp(t *testing.T) {
	t.Parallel()
	s := up(t, sound())
	if err := s.Fault(enginesim.Fault{Kind: "freeze", For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r := examine(t, Options{URLs: []string{s.URL()}, Timeout: 300 * time.Millisecond})
	if took := time.Since(began); took > 3*time.Second || !r.TimeUp {
		t.Errorf("got %v and time up %v, want at most 3s and true", took, r.TimeUp)
	}
	if f := r.Findings[0]; f.Status != Failed || !strings.Contains(f.Seen, "no answer in time") {
		t.Errorf("got first finding %+v, want a failure for lack of an answer", f)
	}
	if !strings.Contains(text(t, r), "with --timeout") {
		t.Error("the report does not say that the time was over")
	}
}

func TestWrongUse(t *testing.T) {
	for name, o := range map[string]Options{
		"nothing":      {},
		"both":         {Config: config.Default(), URLs: []string{"http://x"}},
		"empty config": {Config: config.Default()},
		"bad url":      {URLs: []string{"ftp://x"}},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{URLs: []string{"http://127.0.0.1:1"}}); err == nil {
		t.Error("got no error after the end of the context, want one")
	}
}

// Progress names each step that begins, one call at a time.
func TestProgress(t *testing.T) {
	t.Parallel()
	cfg, _ := pair(t, sound())
	var steps []string // written under the lock under which Progress is called
	examine(t,
		Options{Config: cfg, Progress: func(subject, step string) { steps = append(steps, subject+": "+step) }})
	for _, w := range []string{
		"prefill p0: asking http", "decode d0: asking its tokenizer", "prefill p0: following its events",
		"prefill p0: sending a test prompt",
	} {
		if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, w) }) {
			t.Errorf("got steps %q, want %q among them", steps, w)
		}
	}
}

// The table is consistent: ids are unique, a check comes after the checks that it needs, and each check
// has one judge and a reason.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range table() {
		judges := 0
		for _, has := range []bool{c.server != nil, c.rank != nil, c.fleet != nil} {
			if has {
				judges++
			}
		}
		if seen[c.id] || judges != 1 || c.title == "" || c.trouble == "" || !strings.HasSuffix(c.why, ".") {
			t.Errorf("%s: got seen before %v, %d judges, title %q, why %q; want a new id, 1 judge, both texts",
				c.id, seen[c.id], judges, c.title, c.why)
		}
		for _, id := range c.needs {
			if !seen[id] {
				t.Errorf("%s needs %s, which is not earlier in the table", c.id, id)
			}
		}
		seen[c.id] = true
	}
}

// Each check is described in the document for operators.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table() {
		if prefix, ok := strings.CutSuffix(c.id, "mismatch"); !bytes.Contains(page, []byte("`"+c.id+"`")) &&
			!(ok && bytes.Contains(page, []byte("`"+prefix+"`"))) {
			t.Errorf("docs/doctor.md does not describe %s", c.id)
		}
	}
}

// Without a batch of events, the Date header shows the difference between two clocks.
func TestClockSkewByDate(t *testing.T) {
	now := time.Now()
	for off, want := range map[time.Duration]Status{
		-time.Minute: Warning, -time.Second: OK, time.Second: OK, time.Minute: Warning,
	} {
		r := &rank{s: &server{seen: asked{clock: serverClock{date: now.Add(off), heard: now}}}}
		if v := clocksAgree(r); v.status != want {
			t.Errorf("clock off by %v: got %+v, want status %v", off, v, want)
		}
	}
}

// The index's prediction is compared with the engine's cached tokens, in both directions.
func TestPredictionHolds(t *testing.T) {
	for _, c := range []struct {
		name                string
		depth, late, cached int
		want                Status
	}{
		{"as promised", 4, 4, 64, OK},
		{"events came late", 0, 4, 64, OK}, // events-silent warns about the silence
		{"hybrid model", 4, 4, 32, Warning},
		{"more than promised", 2, 2, 64, Warning},
		{"nothing promised", 0, 0, 64, Failed},
		{"cached tokens not reported", 4, 4, -1, OK},
		{"cached tokens not reported, not all blocks found", 3, 3, -1, Warning},
	} {
		r := &rank{s: &server{}, trial: &trial{
			prompt: make([]uint32, 69), size: 16, depth: c.depth, late: c.late, second: answer{cached: c.cached},
		}}
		if v := predictionHolds(r); v.status != c.want {
			t.Errorf("%s: got %+v, want status %v", c.name, v, c.want)
		}
	}
}

// With kv_cache_report_mode an engine announces cached blocks again at each lookup. So it may announce more
// blocks than its cache can hold.
func TestPrefixesAnnouncedAgain(t *testing.T) {
	hashes := []kv.EngineHash{1, 2, 3, 4}
	stored := kv.Event{Kind: kv.Stored, Hashes: hashes, Tokens: make([]kv.Token, 64), BlockSize: 16}
	gone := kv.Event{Kind: kv.Removed, Hashes: hashes}
	offloaded := stored
	offloaded.Tier = kv.CPU
	for _, c := range []struct {
		name   string
		events []kv.Event
		want   Status
	}{
		{"stored once", []kv.Event{stored, offloaded, offloaded, offloaded}, OK},
		{"stored and removed over and over", []kv.Event{stored, gone, stored, gone, stored, gone}, OK},
		{"cleared between", []kv.Event{stored, stored, {Kind: kv.Cleared}, stored}, OK},
		{"announced again", []kv.Event{stored, stored, stored}, Warning},
	} {
		l := &link{follower: kvevents.NewFollower(kvevents.Source{}, nil, kvevents.Options{})}
		l.joined.live = true
		l.heard.take(&kv.Batch{Events: c.events})
		room := map[int]engine.Rank{0: {Cache: engine.Cache{Blocks: 5}}}
		s := &server{seen: asked{series: scraped{scrape: engine.Metrics{Ranks: room}}}}
		r := &rank{s: s, link: l, trial: &trial{prompt: make([]uint32, 69), size: 16, depth: 4, late: 4}}
		r.trial.second.cached = 64
		if v := predictionHolds(r); v.status != c.want {
			t.Errorf("%s: got %+v, want status %v", c.name, v, c.want)
		}
	}
}

// An engine on another machine that publishes or replays on its loopback address is detected, even if a
// process listens there on the doctor's machine.
func TestLoopbackSeenFromAfar(t *testing.T) {
	s := &server{host: "10.0.0.7"}
	for _, c := range []struct {
		t    told
		want Status
	}{
		{told{Endpoint: "tcp://127.0.0.1:5557"}, Failed},
		{told{Endpoint: "tcp://*:5557", Replay: "tcp://localhost:5657"}, Failed},
		{told{Endpoint: "tcp://*:5557", Replay: "tcp://*:5657"}, OK},
	} {
		c.t.Enabled, c.t.Publisher = true, "zmq"
		r := &rank{s: s, told: &c.t, link: &link{}}
		r.source, r.own = s.listenAt(r.told, 0, 0)
		if v := bindsWell(r); v.status != c.want {
			t.Errorf("%+v: got %+v, want status %v", c.t, v, c.want)
		}
	}
}

// Two engines at one address are distinguished from one engine in both pools.
func TestSharedAddresses(t *testing.T) {
	t.Parallel()
	a, b := up(t, sound()), up(t, sound())
	events, replay := a.Endpoints(0)
	cfg := pools([]*enginesim.Server{a}, []*enginesim.Server{b})
	cfg.Pools.Decode.Replicas[0].Events = config.Events{Endpoint: events, Replay: replay}
	want(t, examine(t, Options{Config: cfg}), "failed port-collision prefill p0",
		"failed port-collision decode d0")
	want(t, examine(t, Options{Config: pools([]*enginesim.Server{a}, []*enginesim.Server{a})}))
}

var varying = []struct{ pattern, with string }{
	{`127\.0\.0\.1:\d+`, "127.0.0.1:PORT"},
	{`tcp://\*:\d+`, "tcp://*:PORT"},
	{`(?s)(KV blocks move as fast as configured:).*?\n  ok `, "$1 RATES\n  ok "},
	{`\b(under )?\d+(\.\d+)?(ms|µs|s)\b`, "TIME"},
	{`(behind|ahead of) our clock`, "beside our clock"},
}

// The golden file has the report of a fleet with several faults. It helps to review a change of words.
func TestText(t *testing.T) {
	t.Parallel()
	p := up(t, with(func(o *enginesim.Options) {
		o.DPRanks = 2
		o.NoReplay = true
		o.NoUsageDetails = true
	}))
	d0 := up(t, with(func(o *enginesim.Options) {
		o.EventsEndpoint = "tcp://0.0.0.0:" + closed
		o.Wrong.StrictBind = true
		o.Wrong.Tokenizer = "b"
	}))
	cfg := pools([]*enginesim.Server{p},
		[]*enginesim.Server{d0, up(t, with(func(o *enginesim.Options) { o.EventsEndpoint = "" }))})
	got := text(t, examine(t, Options{Config: cfg}))
	for _, v := range varying {
		got = regexp.MustCompile(v.pattern).ReplaceAllString(got, v.with)
	}
	golden := filepath.Join("testdata", "report.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if normal(got) != normal(string(want)) {
		t.Errorf("the report differs from %s; -update writes the file. Got:\n%s", golden, got)
	}
}

// Without -v the report has one line for the passed checks of each subject. It shows all problems and the
// speeds of the links.
func TestTextWithoutWhatIsWell(t *testing.T) {
	r := &Report{
		Took: 300 * time.Microsecond, Count: Count{OK: 4, Failed: 1},
		Findings: []Finding{
			{Check: "a", Subject: "d0", Status: OK, Title: "a holds", Seen: "so"},
			{Check: "b", Subject: "d0", Status: Failed, Title: "b does not hold", Seen: "x", Why: "y", Do: "z"},
			{Check: "c", Subject: "d0", Status: OK, Title: "c holds", Seen: "so"},
			{Check: "a", Subject: "fleet", Status: OK, Title: "a holds", Seen: "so"},
			{Check: "handoff-slow", Subject: "fleet", Status: OK, Title: "blocks move fast", Seen: "3 GB/s"},
		},
	}
	var b strings.Builder
	if err := r.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	if want := `d0
  FAILED    b does not hold [b]
            seen  x
            why   y
            do    z
  ok        2 checks

fleet
  ok        blocks move fast: 3 GB/s
  ok        1 check

4 ok, 0 warnings, 1 failed, 0 not checked, in under 1ms
--verbose shows what was seen at each check
`; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// normal removes line breaks, because their places depend on the length of ports.
func normal(s string) string { return strings.Join(strings.Fields(s), " ") }

// Two models with two pools each are a sound fleet, although their engines differ in everything that depends
// on the model. A model that lacks a decode engine or a prefill engine makes the fleet unsound.
func TestTwoModels(t *testing.T) {
	t.Parallel()
	cfg, _ := pair(t, sound())
	other := with(func(o *enginesim.Options) { o.Model, o.Core.MaxModelLen = "other", 2048 })
	p, d := up(t, other), up(t, other)
	cfg.Pools.Decode.Replicas = append(cfg.Pools.Decode.Replicas, config.Replica{Name: "d1", URL: d.URL()})
	alone := examine(t, Options{Config: cfg})
	if f := find(t, alone, "model-mismatch", "fleet"); f.Status != Warning ||
		!strings.Contains(f.Seen, "no prefill engine serves other") {
		t.Errorf("got %+v, want a warning that no prefill engine serves other", f)
	}
	cfg.Pools.Prefill.Replicas = append(cfg.Pools.Prefill.Replicas, config.Replica{Name: "p1", URL: p.URL()})
	both := examine(t, Options{Config: cfg})
	want(t, both)
	if f := find(t, both, "max-model-len-mismatch", "fleet"); f.Status != OK ||
		!strings.Contains(f.Seen, "other: 2048") || !strings.Contains(f.Seen, "sim: 32768") {
		t.Errorf("got %+v, want OK with the lengths of both models", f)
	}
	cfg.Pools.Decode.Replicas = cfg.Pools.Decode.Replicas[:1]
	want(t, examine(t, Options{Config: cfg}), "failed model-mismatch fleet")
}

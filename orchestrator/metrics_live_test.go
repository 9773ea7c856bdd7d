package orchestrator

import (
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/discovery/dns/dnstest"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// moved is the set of metrics that have had a value other than zero. Safe for concurrent use.
type moved struct {
	mu    sync.Mutex
	names map[string]bool
}

// look adds the metrics that are not zero now.
func (m *moved) look(t *testing.T, o *Orchestrator) {
	t.Helper()
	families, err := o.reg.Gather()
	if err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range families {
		for _, x := range f.GetMetric() {
			if x.GetCounter().GetValue() != 0 || x.GetGauge().GetValue() != 0 ||
				x.GetHistogram().GetSampleCount() != 0 {
				m.names[f.GetName()] = true
			}
		}
	}
}

func (m *moved) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[name]
}

// troubled are the metrics that move only when something goes wrong or in an unusual mode, each with the
// scenario that moves it. All other metrics must move in an ordinary minute: see [lively].
var troubled = map[string]string{
	"tandem_retries_total":                 "a replica fails once",
	"tandem_attempt_failures_total":        "a replica fails once",
	"tandem_retry_budget_used":             "two of three decode engines fail",
	"tandem_decisions_unwritten_total":     "the disk is full",
	"tandem_file_stalled":                  "the disk stands still",
	"tandem_refused_total":                 "no room",
	"tandem_queue_waiting":                 "no room",
	"tandem_queue_backlog_seconds":         "no room for all",
	"tandem_transfer_params_refused_total": "params grow old",
	"tandem_give_back_total":               "params grow old",
	"tandem_rescues_total":                 "a pushed prompt is lost",
	"tandem_stalled_seconds_total":         "the process stands still",
	"tandem_late_answers_total":            "a decode engine's core stands still",
	"tandem_decode_distrusted_total":       "a decode engine's core stands still",
	"tandem_decode_rebinds_total":          "decode dies between the legs",
	"tandem_ejections_total":               "two of three decode engines fail",
	"tandem_handoff_unmoved_total":         "a decode engine loads nothing",
	"tandem_trials_total":                  "two of three decode engines fail",
	"tandem_pair_ejections_total":          "two of three decode engines fail",
	"tandem_pair_ejected":                  "two of three decode engines fail",
	"tandem_ejection_overridden_total":     "two of three decode engines fail",
	"tandem_engine_restarts_total":         "an engine is restarted",
	"tandem_cached_unmeasured_total":       "an engine tells no cached tokens",
	"tandem_decisions_partial_total":       "a stream is stale",
	"tandem_replica_state":                 "a replica has a state",
	"tandem_continued_total":               "a stream is cut",
	"tandem_prefill_pieces_total":          "a long prompt is sent in pieces",
	"tandem_replica_requests_of_others":    "another router says nothing",
	"tandem_replica_max_sequences":         "an engine runs few at a time",
	"tandem_replica_cuts_prompts":          "an engine cuts prompts itself",
	"tandem_replica_read_token_seconds":    "reading back was learned",
	"tandem_prefill_legs_left_out_total":   "a store has the prompt",
	"tandem_router_peer_up":                "one of two other routers answers",
	"tandem_router_peer_failures_total":    "one of two other routers answers",

	"tandem_discovery_members":                 "a name is known, another is not",
	"tandem_discovery_failing":                 "a name is known, another is not",
	"tandem_discovery_remembered":              "a name is known, another is not",
	"tandem_ttft_goal_seconds":                 "a first token has a goal",
	"tandem_key_requests_total":                "a client has a key",
	"tandem_class_requests_total":              "there are classes",
	"tandem_class_time_to_first_token_seconds": "there are classes",
	"tandem_key_tokens_total":                  "a client has a key",
	"tandem_alias_requests_total":              "an alias is asked for",

	"tandem_router_store_up":             "routers meet at a server",
	"tandem_router_store_routers":        "routers meet at a server",
	"tandem_router_store_delay_seconds":  "routers meet at a server",
	"tandem_router_store_messages_total": "routers meet at a server",

	"tandem_answer_cache_requests_total":  "answers are kept",
	"tandem_answer_cache_bypassed_total":  "answers are kept",
	"tandem_answer_cache_unkept_total":    "answers are kept",
	"tandem_answer_cache_entries":         "answers are kept",
	"tandem_answer_cache_bytes":           "answers are kept",
	"tandem_answer_cache_evictions_total": "answers are kept",

	"tandem_answer_cache_shared_looks_total":  "answers are shared",
	"tandem_answer_cache_shared_writes_total": "answers are shared",
	"tandem_answer_cache_shared_up":           "answers are shared",

	"tandem_events_gaps_total":            "a stream in trouble",
	"tandem_events_lost_total":            "a stream in trouble",
	"tandem_events_restarts_total":        "a stream in trouble",
	"tandem_events_reconnects_total":      "a stream in trouble",
	"tandem_events_duplicates_total":      "a stream in trouble",
	"tandem_events_skipped_total":         "a stream in trouble",
	"tandem_events_decode_errors_total":   "a stream in trouble",
	"tandem_events_wrong_rank_total":      "a stream in trouble",
	"tandem_events_skewed_total":          "a stream in trouble",
	"tandem_events_replay_timeouts_total": "a stream in trouble",
	"tandem_index_orphans_total":          "a stream in trouble",
	"tandem_index_truncated_total":        "a stream in trouble",
	"tandem_index_truncated":              "a stream in trouble",
	"tandem_index_victims_total":          "a prefill engine is full",
}

// scenarios are the scenarios by their names in troubled.
var scenarios = map[string]func(t *testing.T, m *moved){
	"a replica fails once":             reported(setup{}, "prefill", fail(503)),
	"a pushed prompt is lost":          promptLost,
	"params grow old":                  reported(setup{}, "handoff", wait(16*time.Second)),
	"the process stands still":         reported(setup{}, "plan", stoodStill),
	"decode dies between the legs":     reported(setup{}, "prefill", decodeFails),
	"an engine tells no cached tokens": reported(setup{engine: noDetails, config: alone}, "plan", nothing),
	"a stream is stale":                reported(setup{}, "plan", streamStale),
	"a stream is cut": reported(setup{}, "decode",
		fault(enginesim.Fault{Kind: "cut_stream", After: 4})),
	"a replica has a state": reported(setup{}, "plan", stateHolds),
	"no room":               noRoom,
	"no room for all":       noRoomForAll,
	"a decode engine's core stands still": reported(slowPair(30*time.Second), "decode",
		func(w *world, _ *simulated) { standStill(w) }),
	"a long prompt is sent in pieces":  longInPieces,
	"an engine runs few at a time":     fewAtATime,
	"an engine cuts prompts itself":    cutsItself,
	"reading back was learned":         readingWasLearned,
	"a store has the prompt":           storeHasIt,
	"answers are kept":                 answersKept,
	"answers are shared":               answersShared,
	"an engine is restarted":           engineRestarted,
	"one of two other routers answers": oneOfTwo,
	"another router says nothing":      anotherIsSilent,
	"routers meet at a server":         routersMeet,
	"a stream in trouble":              streamInTrouble,
	"a name is known, another is not":  oneNameOfTwo,
	"a first token has a goal":         reported(setup{config: firstTokenGoal}, "plan", nothing),
	"a client has a key":               keyAsks(teams),
	"there are classes":                keyAsks(classed),
	"an alias is asked for":            aliasIsAskedFor,
	"a prefill engine is full":         prefillFull,
	"the disk is full":                 diskFull,
	"the disk stands still":            diskStandsStill,
	"two of three decode engines fail": twoOfThreeFail,
	"a decode engine loads nothing":    reported(setup{}, "decode", fault(enginesim.Fault{Kind: "no_load"})),
}

// Every metric in docs/metrics.md moves: in an ordinary minute or in its scenario.
func TestEveryPromisedMetricMoves(t *testing.T) {
	names := promised(t)
	t.Run("an ordinary minute", func(t *testing.T) {
		m := &moved{names: map[string]bool{}}
		usual := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return troubled[n] != "" })
		lively(t, m, usual)
		for _, n := range usual {
			if !m.has(n) {
				t.Errorf("%s did not move", n)
			}
		}
	})
	for _, scenario := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(scenario, func(t *testing.T) {
			m := &moved{names: map[string]bool{}}
			scenarios[scenario](t, m)
			for n, by := range troubled {
				if by == scenario && !m.has(n) {
					t.Errorf("%s did not move", n)
				}
			}
		})
	}
	for n, by := range troubled {
		if !slices.Contains(names, n) || scenarios[by] == nil {
			t.Errorf("%s: not in docs/metrics.md, or there is no scenario %q", n, by)
		}
	}
}

// reported makes a scenario of one request. At the first span of this name, happens is called.
func reported(s setup, span string, happens trouble) func(*testing.T, *moved) {
	return func(t *testing.T, m *moved) {
		in(t, s, func(w *world) {
			var once sync.Once
			w.at(span, func(replica string) { once.Do(func() { happens(w, w.by(replica)) }) })
			w.ask(chat(true))
			m.look(t, w.o)
		})
	}
}

func nothing(*world, *simulated) {}

// keyAsks makes a scenario of one stream for a client with a key.
func keyAsks(c func(*config.Config)) func(*testing.T, *moved) {
	return func(t *testing.T, m *moved) {
		in(t, setup{config: c}, func(w *world) {
			w.ask(chat(true).shows("hush-a"))
			m.look(t, w.o)
		})
	}
}

func aliasIsAskedFor(t *testing.T, m *moved) {
	alias := config.Alias{Name: "chat", To: []config.Target{{Model: "sim", Weight: 1}}}
	in(t, setup{config: withAliases(alias)}, func(w *world) {
		w.ask(adapted(chat(true), "chat"))
		m.look(t, w.o)
	})
}

// promptLost is a prompt whose blocks the prefill engine gives up before decode asks for them.
func promptLost(t *testing.T, m *moved) {
	in(t, pushing(setup{}), func(w *world) {
		w.strand()
		w.ask(chat(true))
		w.freed("prefilled")
		m.look(t, w.o)
	})
}

func firstTokenGoal(c *config.Config) { c.Limits.FirstToken = time.Minute }

// noDetails is an engine without --enable-prompt-tokens-details; alone is a router that does not split.
// With a split, NIXL params report the cached tokens of the prefill all the same.
func noDetails(_ string, o *enginesim.Options) { o.NoUsageDetails = true }
func alone(c *config.Config)                   { c.Local = config.LocalAlways }

// decodeFails marks the decode replica with the request's lease as unhealthy.
func decodeFails(w *world, _ *simulated) {
	for _, d := range w.o.decode.Status(time.Now()) {
		if d.Leases > 0 {
			w.o.decode.SetHealthy(d.ID, false, "dead")
		}
	}
}

func streamStale(w *world, _ *simulated) {
	w.o.prefill.SetTrust(replica.ID(w.p[0].addr), replica.Stale)
}

func stateHolds(w *world, _ *simulated) {
	id := replica.ID(w.p[0].addr)
	w.o.fleet.Endpoint(id).SetState(id, fleet.StateSlow, "its machine is busy")
}

func noRoom(t *testing.T, m *moved) {
	in(t, narrow(func(c *config.Config) { c.Limits.Queue = 1 }), func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		second := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		w.refused(chat(true), w.ask(chat(true)), 0)
		m.look(t, w.o)
		w.exact(chat(true), first.end())
		w.exact(chat(true), second.end())
	})
}

// Each request needs less than half of the replica, so none stands aside.
func noRoomForAll(t *testing.T, m *moved) {
	s := narrow(nil)
	s.engine = func(name string, o *enginesim.Options) {
		if name == "d0" {
			o.Core.Blocks = 80
		}
	}
	in(t, s, func(w *world) {
		var all []*pending
		for range 8 {
			all = append(all, w.begin(chat(true)))
			time.Sleep(time.Millisecond)
		}
		m.look(t, w.o)
		for _, p := range all {
			w.exact(chat(true), p.end())
		}
	})
}

func longInPieces(t *testing.T, m *moved) {
	in(t, inPieces(nil), func(w *world) {
		w.exact(long(chat(true)), w.ask(long(chat(true))))
		m.look(t, w.o)
	})
}

func fewAtATime(t *testing.T, m *moved) {
	in(t, ofFewSequences(8), func(w *world) {
		all := w.manyAtOnce(16)
		m.look(t, w.o)
		for _, p := range all {
			p.end()
		}
	})
}

// prefillFull asks for prompts until a prefill engine has evicted what it should evict.
func prefillFull(t *testing.T, m *moved) {
	s := streams(setup{
		prefill: 1, decode: 1,
		config: func(c *config.Config) { c.Local = config.LocalNever },
	})
	usual := s.engine
	s.engine = func(name string, o *enginesim.Options) {
		if usual(name, o); name == "p0" {
			o.Core.Blocks = 60
		}
	}
	w := newWorld(t, s)
	defer w.close()
	until(t, "all streams are live", func() bool { return w.live() == 2 })
	asked := 0
	until(t, "a victim", func() bool {
		asked++
		w.ask(post("/v1/completions", fmt.Sprintf(
			`{"model":"sim","max_tokens":4,"temperature":0,"prompt":%s}`, idPrompt(asked, 200))))
		m.look(t, w.o)
		return w.o.prefill.IndexStats().Victims.Both > 0
	})
}

func cutsItself(t *testing.T, m *moved) {
	in(t, stepsOf(128), func(w *world) {
		for _, s := range w.besideLong() {
			defer s.end()
		}
		m.look(t, w.o)
	})
}

// readingWasLearned is a start with a saved time to read blocks back.
func readingWasLearned(t *testing.T, m *moved) {
	in(t, setup{}, func(w *world) {
		s := estimate.Speeds{Reads: []estimate.ReadState{{PerToken: 1e-5, At: time.Now()}}}
		w.o.prefill.RestoreSpeeds(replica.ID(w.p[0].addr), s, time.Now())
		m.look(t, w.o)
	})
}

// storeHasIt is a prompt that a store has when it is asked for again.
func storeHasIt(t *testing.T, m *moved) {
	in(t, storing(core.NewStore(10_000), setup{prefill: 1}), func(w *world) {
		w.exact(storePrompt(), w.ask(storePrompt()))
		w.elsewhere(storePrompt())
		m.look(t, w.o)
	})
}

func engineRestarted(t *testing.T, m *moved) {
	in(t, setup{}, func(w *world) {
		w.p[0].Close()
		time.Sleep(time.Second)
		w.p[0] = w.engine(setup{}, "p0") // a new process with another start time
		time.Sleep(30 * time.Second)
		m.look(t, w.o)
	})
}

func twoOfThreeFail(t *testing.T, m *moved) {
	in(t, setup{decode: 3}, func(w *world) {
		for _, d := range w.d[:2] {
			fault(enginesim.Fault{Kind: "fail", Count: -1})(w, d)
		}
		var wg sync.WaitGroup
		wg.Go(func() { w.crowd(60, 12, 0) })
		for range 20 { // a retry uses budget only while it runs
			time.Sleep(50 * time.Millisecond)
			m.look(t, w.o)
		}
		wg.Wait()
		time.Sleep(2 * time.Second)
		m.look(t, w.o)
	})
}

func diskFull(t *testing.T, m *moved) {
	in(t, setup{config: onFullDisk}, func(w *world) {
		w.ask(chat(true))
		time.Sleep(time.Second)
		m.look(t, w.o)
	})
}

func diskStandsStill(t *testing.T, m *moved) {
	onFrozen(t, setup{config: func(c *config.Config) {
		c.Decisions.File = filepath.Join(t.TempDir(), "frozen.jsonl")
	}}, func(w *world, _ *frozen) {
		w.ask(chat(true))
		time.Sleep(time.Minute)
		m.look(t, w.o)
	})
}

func oneOfTwo(t *testing.T, m *moved) {
	two := func(c *config.Config) { c.Routers.Peers = []string{"http://admin-b:80", "http://nobody:80"} }
	in(t, setup{config: two}, func(w *world) {
		_, stop := w.beside()
		defer stop()
		time.Sleep(time.Second)
		m.look(t, w.o)
	})
}

func anotherIsSilent(t *testing.T, m *moved) {
	in(t, silent(nil), func(w *world) {
		_, stop := w.beside()
		defer stop()
		ended := w.bothAsk(40 * time.Second)
		m.look(t, w.o)
		ended()
	})
}

// routersMeet has two routers and a real server, so it runs in real time.
func routersMeet(t *testing.T, m *moved) {
	server := valkeytest.Start(t)
	w := newWorld(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) {
		c.Routers.Valkey.Addresses = []string{"valkey:6379"}
	}})
	defer w.bridge("valkey:6379", server.Addr)()
	defer w.close()
	_, stop := w.beside()
	defer stop()
	until(t, "they meet", func() bool {
		m.look(t, w.o)
		return m.has("tandem_router_store_routers") && m.has("tandem_router_store_delay_seconds")
	})
}

// oneNameOfTwo asks a DNS server for two names; the server knows one of them. An earlier process had found
// the other name.
func oneNameOfTwo(t *testing.T, m *moved) {
	server := dnstest.Start(t)
	server.Set(t, "known.internal. 5 IN A 10.0.0.9")
	w := newWorld(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) {
		c.Discovery.DNS.Servers = []string{server.Addr}
		c.Discovery.DNS.Prefill = []config.Replica{{URL: "http://known.internal:8000"}}
		c.Discovery.DNS.Decode = []config.Replica{{URL: "http://unknown.internal:8000"}}
	}})
	defer w.close()
	until(t, "one name is found", func() bool {
		m.look(t, w.o)
		return m.has("tandem_discovery_members") && m.has("tandem_discovery_failing")
	})
	now := time.Now()
	kept := &discovery.Kept{Discovery: w.cfg.Discovery, At: now}
	for _, f := range w.o.sources.Found() {
		f.Replicas = []config.Replica{{URL: "http://10.0.0.8:8000"}}
		kept.Answers = append(kept.Answers, f.Members)
	}
	w.o.sources.Remember(kept, now)
	until(t, "the other name is remembered", func() bool {
		m.look(t, w.o)
		return m.has("tandem_discovery_remembered")
	})
}

// bridge forwards connections from an address of the world's network to a real address until it is
// stopped.
func (w *world) bridge(from, to string) (stop func()) {
	w.t.Helper()
	ln, err := w.net.Listen("tcp", from)
	if err != nil {
		w.t.Fatal(err)
	}
	var talks sync.WaitGroup
	talks.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				talks.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					in.Close()
					out.Close()
				})
			}
		}
	})
	return func() {
		ln.Close()
		talks.Wait()
	}
}

// streams makes every engine of a setup publish its KV events, and the router read them. Events need real
// sockets, so the test runs in real time.
func streams(s setup) setup {
	inner := s.config
	s.options = func(o *Options) { o.NoEvents = false }
	s.engine = func(name string, o *enginesim.Options) {
		o.EventsEndpoint = "tcp://127.0.0.1:0"
		if name[0] == 'd' {
			o.Core.MaxSeqs = 1 // so that some requests wait
		}
	}
	s.config = func(c *config.Config) {
		for _, pool := range []*config.Pool{&c.Pools.Prefill, &c.Pools.Decode} {
			pool.PollInterval = 50 * time.Millisecond
		}
		if inner != nil {
			inner(c)
		}
	}
	return s
}

// until checks cond repeatedly until it holds, for at most ten seconds.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	within(t, 10*time.Second, what, cond)
}

// within is until with another limit, for a condition that takes seconds by design.
func within(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("timed out waiting for: %s", what)
			return
		}
	}
}

// lively is an ordinary minute: event streams are followed, and requests of two kinds with a common prefix
// run several at a time. It ends when all metrics in names have moved.
func lively(t *testing.T, m *moved, names []string) {
	w := newWorld(t, streams(setup{}))
	defer w.close()
	until(t, "all streams live", func() bool { return w.live() == len(w.p)+len(w.d) })
	missing := func() []string { return slices.DeleteFunc(slices.Clone(names), m.has) }
	for range 20 {
		var all []*pending
		for i := range 6 {
			p := chat(true)
			if i%3 == 2 {
				p = completion(false)
			}
			p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":30`, 1)
			all = append(all, w.begin(p))
		}
		for _, r := range all {
			for done := false; !done; {
				select {
				case got := <-r.heard:
					if done = true; got.status != 200 {
						t.Fatalf("status %d: %s", got.status, got.raw)
					}
				case <-time.After(10 * time.Millisecond):
					m.look(t, w.o)
				}
			}
		}
		if m.look(t, w.o); len(missing()) == 0 {
			break
		}
	}
	for _, r := range w.o.State().Status().Replicas {
		if s := r.Stream; s == nil || s.Events == 0 || s.Blocks["stored"] == 0 || s.Replays == 0 ||
			s.LastAt.IsZero() {
			t.Errorf("/debug/replicas shows the stream of %s as %+v", r.Name, s)
		}
	}
}

// A restarted engine may go on with the sequence numbers of its event stream. The reader of the stream is
// told of the restart and forgets the engine's blocks.
func TestRestartIsReportedToTheStream(t *testing.T) {
	m := newFakePublisher(t)
	w := newWorld(t, streams(setup{
		prefill: 1, decode: 1,
		config: func(c *config.Config) { c.Pools.Decode.Replicas[0].Events = config.Events{Endpoint: m.endpoint} },
	}))
	defer w.close()
	m.subscribed()
	m.say(0, 0)
	until(t, "the first batch", func() bool { return w.count("tandem_events_batches_total", w.d[0].addr) == 1 })
	w.d[0].Close()
	w.d[0] = w.engine(setup{}, "d0")
	seq := uint64(0)
	until(t, "the stream hears of the restart", func() bool {
		seq++
		m.say(seq, 0)
		return w.count("tandem_events_restarts_total", w.d[0].addr) == 1
	})
}

// live returns the number of live event streams.
func (w *world) live() (n int) {
	for _, watched := range w.o.fleet.Watchers() {
		for _, f := range watched.Streams() {
			if f.Live() {
				n++
			}
		}
	}
	return n
}

// streamInTrouble plays two publishers. The one of d0 sends everything that a publisher should not send;
// the one of p0 never answers requests for a replay.
func streamInTrouble(t *testing.T, m *moved) {
	bad, mute := newFakePublisher(t), newFakePublisher(t)
	w := newWorld(t, streams(setup{prefill: 1, decode: 1, config: func(c *config.Config) {
		c.Pools.Decode.Replicas[0].Events = config.Events{Endpoint: bad.endpoint}
		c.Pools.Decode.IndexBytes = 1 << 20
		c.Pools.Prefill.Replicas[0].Events = config.Events{Endpoint: mute.endpoint, Replay: mute.mute()}
	}}))
	defer w.close()
	moves := func(name string) {
		t.Helper()
		until(t, name, func() bool { m.look(t, w.o); return m.has(name) })
	}
	block := func(n int, parent uint64) kv.Event {
		e := kv.Event{
			Kind: kv.Stored, BlockSize: 16, Tokens: make([]kv.Token, 16*n), HasParent: parent != 0,
			Parent: kv.EngineHash(parent), Group: kv.NoGroup,
		}
		for i := range n {
			e.Hashes = append(e.Hashes, kv.EngineHash(i+1))
		}
		return e
	}
	bad.subscribed()
	bad.say(0, 0, block(1, 0))
	moves("tandem_events_batches_total")
	bad.say(1, 7, block(1, 0))
	moves("tandem_events_wrong_rank_total")
	bad.at = bad.at.Add(time.Hour)
	bad.say(2, 0, block(1, 99))
	moves("tandem_events_skewed_total")
	moves("tandem_index_orphans_total")
	bad.raw(3, []byte("\x93\xcb\x41\xd0\x00\x00\x00\x00\x00\x00\x91\x81\xa4type\xa9Something\x00"))
	moves("tandem_events_skipped_total")
	bad.say(4, 0, block(60_000, 0))
	moves("tandem_index_truncated_total")
	moves("tandem_index_truncated")
	bad.raw(5, []byte("\xc1"))
	moves("tandem_events_decode_errors_total")
	bad.say(9, 0, block(1, 0))
	moves("tandem_events_gaps_total")
	moves("tandem_events_lost_total")
	bad.again()
	bad.subscribed()
	moves("tandem_events_reconnects_total")
	bad.say(9, 0, block(1, 0))
	moves("tandem_events_duplicates_total")
	bad.say(0, 0, block(2, 0))
	moves("tandem_events_restarts_total")
	moves("tandem_events_replay_timeouts_total")
}

package doctor

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
)

// Some faults of two engines show only at a handoff. The doctor finds each of them, explains it and
// distinguishes it from the others.
func TestHandoffFindsWhatDoesNotMove(t *testing.T) {
	fault := func(kind string) func(*enginesim.Options) {
		return func(o *enginesim.Options) { o.Faults = []enginesim.Fault{{Kind: kind, Count: -1}} }
	}
	both := func(a, b func(*enginesim.Options)) func(*enginesim.Options) {
		return func(o *enginesim.Options) { a(o); b(o) }
	}
	quick := func(o *enginesim.Options) { o.HandshakeTimeout = 1 }
	recompute := func(o *enginesim.Options) { o.Core.LoadPolicy = core.Recompute }
	none := func(*enginesim.Options) {}
	version33 := func(o *enginesim.Options) { o.Version = "0.33.0" }
	push := func(o *enginesim.Options) { o.Core.Push = true }
	stored := func(o *enginesim.Options) { o.Store = core.NewStore(10_000) }
	otherStore := func(o *enginesim.Options) { o.Store = core.NewStore(10_000) }
	for _, c := range []struct {
		name            string
		connector       string // "" is nixl
		prefill, decode func(*enginesim.Options)
		want            []string
		check, seen, do string
	}{
		{
			name: "no transfer params from prefill", prefill: fault("null_params"), decode: none,
			want: []string{"failed handoff-failed fleet"}, check: "handoff-failed",
			seen: "prefill p0 to decode d0: the answer has no kv_transfer_params", do: "start the prefill engine",
		},
		{
			name: "the path is cut", prefill: none, decode: both(quick, fault("cut_path")),
			want: []string{"failed handoff-failed fleet"}, check: "handoff-failed",
			seen: "answered 500", do: "VLLM_NIXL_SIDE_CHANNEL_HOST",
		},
		{
			name: "the path is cut, engines of 0.33", prefill: version33,
			decode: both(version33, both(quick, fault("cut_path"))),
			want:   []string{"failed handoff-failed fleet"}, check: "handoff-failed",
			seen: "answered 500", do: "VLLM_KV_CACHE_LAYOUT",
		},
		{
			name: "the path is cut, and decode recomputes", prefill: none,
			decode: both(both(quick, fault("cut_path")), recompute),
			want:   []string{"failed handoff-not-moved fleet"}, check: "handoff-not-moved",
			seen: "1 failed transfers", do: "kv_load_failure_policy",
		},
		{
			name: "decode has no connector", prefill: none,
			decode: func(o *enginesim.Options) { o.Wrong.NoConnector = true },
			want:   []string{"warning connector-missing decode d0", "failed handoff-not-moved fleet"},
			check:  "handoff-not-moved", seen: "found nothing of the prompt", do: "NixlConnector",
		},
		{
			name: "decode has no connector and reports no cached tokens", prefill: none,
			decode: func(o *enginesim.Options) { o.Wrong.NoConnector, o.NoUsageDetails = true, true },
			want: []string{
				"warning connector-missing decode d0", "warning usage-details-missing decode d0",
				"failed handoff-not-moved fleet",
			},
			check: "handoff-not-moved", seen: "have not grown", do: "NixlConnector",
		},
		{
			name: "other blocks arrive", prefill: none, decode: fault("wrong_load"),
			want: []string{"failed handoff-wrong-text fleet"}, check: "handoff-wrong-text",
			seen: "where the decode engine says", do: "restart the decode engines",
		},
		{
			name:    "fewer ranks than copies of a head",
			prefill: func(o *enginesim.Options) { o.Core.TensorParallel, o.Core.KVHeads = 8, 4 },
			decode:  func(o *enginesim.Options) { o.Core.TensorParallel, o.Core.KVHeads = 4, 4 },
			want:    []string{"failed handoff-failed fleet"}, check: "handoff-failed",
			seen: "answered 500", do: "size is 8: that of the decode engine must be a multiple of it",
		},
		{
			name: "push", prefill: push, decode: none,
			want: []string{"failed handoff-failed fleet"}, check: "handoff-failed",
			seen: "NIXL push", do: `start all engines with --kv-transfer-config '{"kv_connector":"NixlConnector"`,
		},
		{
			name: "pull where push is configured", connector: config.NIXLPush, prefill: none, decode: push,
			want: []string{"failed handoff-failed fleet"}, check: "handoff-failed",
			seen: "connector.type is nixl-push",
			do:   `start all engines with --kv-transfer-config '{"kv_connector":"NixlPushConnector"`,
		},
		{
			name: "decode has no connector where push is configured", connector: config.NIXLPush, prefill: push,
			decode: func(o *enginesim.Options) { o.Wrong.NoConnector = true },
			want:   []string{"warning connector-missing decode d0", "failed handoff-not-moved fleet"},
			check:  "handoff-not-moved", seen: "found nothing of the prompt", do: "the NixlPushConnector and",
		},
		{
			name: "a store that decode does not have", connector: config.Offloading, prefill: stored, decode: none,
			want:  []string{"warning connector-missing decode d0", "failed handoff-not-moved fleet"},
			check: "handoff-not-moved", seen: "found nothing of the prompt", do: "the OffloadingConnector",
		},
		{
			name: "two stores", connector: config.Offloading, prefill: stored, decode: otherStore,
			want:  []string{"failed handoff-not-moved fleet"},
			check: "handoff-not-moved", seen: "found nothing of the prompt", do: "the OffloadingConnector and",
		},
		{
			name: "pull where MoRI-IO is configured", connector: config.MoRIIO, prefill: none, decode: none,
			want:  []string{"failed handoff-failed fleet"},
			check: "handoff-failed", seen: "connector.type is moriio",
			do: `"kv_producer","kv_load_failure_policy":"fail","kv_connector_extra_config":{"read_mode":true`,
		},
		{
			name: "pull where MoRI-IO writes", connector: config.MoRIIOWrite, prefill: none, decode: none,
			want:  []string{"failed handoff-failed fleet"},
			check: "handoff-failed", seen: "does not listen for prefill engines",
			do: `"kv_producer","kv_load_failure_policy":"fail","kv_connector_extra_config":{"defer_timeout":150`,
		},
		{
			name: "MoRIIO", decode: none,
			prefill: func(o *enginesim.Options) { o.Core.MoRIIO, o.Core.Role = core.MoRIIORead, core.Producer },
			want:    []string{"warning connector-missing prefill p0", "failed handoff-failed fleet"},
			check:   "handoff-failed", seen: "MoRIIO", do: "start all engines",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, d := up(t, with(c.prefill)), up(t, with(c.decode))
			cfg := pools([]*enginesim.Server{p}, []*enginesim.Server{d})
			if c.connector != "" {
				cfg.Connector.Type = c.connector
			}
			r := examine(t, Options{Config: cfg})
			want(t, r, c.want...)
			f := find(t, r, c.check, "fleet")
			if !strings.Contains(f.Seen, c.seen) || !strings.Contains(f.Do, c.do) || r.Fit() {
				t.Errorf("got seen %q, want %q in it; got do %q, want %q in it; fit %v, want false",
					f.Seen, c.seen, f.Do, c.do, r.Fit())
			}
			if d.Dead() != nil || p.Dead() != nil {
				t.Errorf("got deaths %v of p0 and %v of d0, want none", p.Dead(), d.Dead())
			}
		})
	}
}

// The doctor reports a key that it does not know in the transfer parameters, and passes the key on.
func TestHandoffTellsUnknownKeys(t *testing.T) {
	t.Parallel()
	p := up(t, with(func(o *enginesim.Options) { o.Wrong.MoreParams = `"first_token_ids":[1]` }))
	r := examine(t, Options{Config: pools([]*enginesim.Server{p}, []*enginesim.Server{up(t, sound())})})
	want(t, r, "warning handoff-params fleet")
	if f := find(t, r, "handoff-params", "fleet"); f.Seen != "prefill p0 gives first_token_ids" {
		t.Errorf("got seen %q, want the unknown key of prefill p0", f.Seen)
	}
}

// The doctor tries no handoff if no engine is named as a prefill engine, or if completions are forbidden.
func TestHandoffNeedsPools(t *testing.T) {
	t.Parallel()
	p, d := up(t, sound()), up(t, sound())
	for name, o := range map[string]Options{
		"by URL":  {URLs: []string{p.URL(), d.URL()}},
		"passive": {Config: pools([]*enginesim.Server{p}, []*enginesim.Server{d}), Passive: true},
	} {
		r := examine(t, o)
		for _, c := range handoffChecks() {
			if f := find(t, r, c.id, "fleet"); f.Status != Skipped {
				t.Errorf("%s: got %+v, want status skipped", name, f)
			}
		}
	}
	if p.Stats()[0].Leases != 0 || d.Stats()[0].NixlTransfers != 0 {
		t.Error("the doctor tried a handoff, want none")
	}
}

// In a small fleet every pair is tried. In a large fleet every rank is tried at least once, with no more
// pairs than ranks.
func TestHandoffSample(t *testing.T) {
	for _, c := range []struct{ prefill, decode, least, most int }{
		{1, 1, 1, 1},
		{4, 8, 32, 32},
		{5, 7, 7, 7},
		{1, 40, 40, 40},
		{40, 3, 40, 40},
		{30, 30, 30, 30},
		{0, 3, 0, 0},
	} {
		f := &fleet{cfg: config.Default()}
		add := func(role replica.Role, n int) {
			for i := range n {
				name := fmt.Sprintf("%v%d", role, i)
				s := &server{name: name, role: role, url: "http://" + name, fleet: f}
				s.ranks = []*rank{{s: s, trial: &trial{}}}
				f.servers = append(f.servers, s)
			}
		}
		add(replica.Prefill, c.prefill)
		add(replica.Decode, c.decode)
		all := f.pairs()
		seen := map[*rank]bool{}
		for _, h := range all {
			seen[h.from], seen[h.to] = true, true
		}
		if len(all) < c.least || len(all) > c.most || c.least > 0 && len(seen) != c.prefill+c.decode {
			t.Errorf("%+v: got %d pairs with %d ranks", c, len(all), len(seen))
		}
	}
}

// The doctor does not try pairs that Tandem would not use.
func TestHandoffOfUnlikeEngines(t *testing.T) {
	t.Parallel()
	cfg, _ := pair(t, with(func(o *enginesim.Options) { o.Version = "0.31.0" }))
	r := examine(t, Options{Config: cfg})
	if f := find(t, r, "handoff-failed", "fleet"); f.Status != Skipped || f.Seen != noPair {
		t.Errorf("got %+v, want a skipped check with %q", f, noPair)
	}
}

// The doctor names a reason of vLLM to refuse a handshake only if this reason can be the cause.
func TestShapesThatCannotPair(t *testing.T) {
	plain := replica.Facts{Version: "0.33.0"}
	drafting := replica.Facts{Version: "0.33.0", Drafts: 3}
	older := replica.Facts{Version: "0.32.0", Drafts: 3}
	const params = `{"remote_host":"h","tp_size":8}`
	for name, tt := range map[string]struct {
		prefill, decode    *replica.Facts
		params             string
		sizes, heads, rows bool
	}{
		"drafts, several ranks":     {&drafting, &drafting, params, true, true, true},
		"drafts on decode alone":    {&plain, &drafting, params, true, true, true},
		"drafts, one rank":          {&drafting, &drafting, `{"tp_size":1}`, false, false, true},
		"drafts, size unknown":      {&drafting, &drafting, `null`, false, false, true},
		"no drafts":                 {&plain, &plain, params, true, false, true},
		"vLLM before these reasons": {&older, &older, params, true, false, false},
	} {
		got := refusedShapes(tt.prefill, tt.decode, tensorParallel([]byte(tt.params)))
		heads := strings.Contains(got, "the prefill engine's 8")
		sizes := strings.Contains(got, "size is 8: that of the decode engine must be a multiple")
		rows := strings.Contains(got, "VLLM_KV_CACHE_LAYOUT")
		if sizes != tt.sizes || heads != tt.heads || rows != tt.rows {
			t.Errorf("%s: got %q; want sizes %v, heads %v, rows %v", name, got, tt.sizes, tt.heads, tt.rows)
		}
	}
}

// Engines that share a store are fit. The doctor sends prompts that are longer than the chunks of a store.
func TestHandoffOverAStore(t *testing.T) {
	store := core.NewStore(10_000)
	shares := func(o *enginesim.Options) { o.Store = store }
	p, d := up(t, with(shares)), up(t, with(shares))
	cfg := pools([]*enginesim.Server{p}, []*enginesim.Server{d})
	for _, kind := range []string{config.Offloading, config.LMCache} {
		cfg.Connector.Type = kind
		r := examine(t, Options{Config: cfg})
		want(t, r)
		f := find(t, r, "handoff-not-moved", "fleet")
		if !r.Fit() || !strings.Contains(f.Seen, "768 of 769 tokens") {
			t.Errorf("%s: fit %v, seen %q, want 768 of 769 tokens", kind, r.Fit(), f.Seen)
		}
	}
}

// Engines that push pair the legs by their ids. The doctor finds healthy pairs fit, hands several prompts
// over each, and leaves no block behind.
func TestHandoffByPush(t *testing.T) {
	push := with(func(o *enginesim.Options) { o.Core.Push = true })
	p, d := []*enginesim.Server{up(t, push), up(t, push)}, []*enginesim.Server{up(t, push), up(t, push)}
	cfg := pools(p, d)
	cfg.Connector.Type = config.NIXLPush
	r := examine(t, Options{Config: cfg})
	want(t, r)
	if f := find(t, r, "handoff-not-moved", "fleet"); !r.Fit() || !strings.Contains(f.Seen, "4 pairs") {
		t.Errorf("fit %v, seen %q, want tokens over 4 pairs", r.Fit(), f.Seen)
	}
	for _, s := range slices.Concat(p, d) {
		// An engine frees its blocks in a step after the answer. A lease would last for 30 s.
		for end := time.Now().Add(10 * time.Second); s.HeldBlocks() != 0 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		if n := s.HeldBlocks(); n != 0 {
			t.Errorf("%d blocks are held", n)
		}
	}
}

// Engines with Mooncake are fit. Without the bootstrap server of the prefill engine, nothing can be handed
// over.
func TestHandoffByMooncake(t *testing.T) {
	role := func(of core.Role) enginesim.Options {
		return with(func(o *enginesim.Options) {
			o.Core.Mooncake, o.Core.Role = true, of
			o.Bootstrap = "127.0.0.1:0"
		})
	}
	p, d := up(t, role(core.Producer)), up(t, role(core.Consumer))
	cfg := pools([]*enginesim.Server{p}, []*enginesim.Server{d})
	cfg.Connector.Type = config.Mooncake
	at, err := url.Parse(p.BootstrapURL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Connector.BootstrapPort, _ = strconv.Atoi(at.Port())
	r := examine(t, Options{Config: cfg})
	want(t, r)
	if f := find(t, r, "handoff-not-moved", "fleet"); !r.Fit() || !strings.Contains(f.Seen, "came by transfer") {
		t.Errorf("fit %v, seen %q", r.Fit(), f.Seen)
	}
	cfg.Connector.BootstrapPort = 1
	r = examine(t, Options{Config: cfg})
	if f := find(t, r, "handoff-failed", "fleet"); r.Fit() || !strings.Contains(f.Seen, "bootstrap server") {
		t.Errorf("without a bootstrap server: fit %v, seen %q", r.Fit(), f.Seen)
	}
}

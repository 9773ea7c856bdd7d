package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// sound is an engine without anything wrong.
func sound(id replica.ID, change ...func(*replica.Facts)) replica.Replica {
	r := replica.Replica{
		ID: id, Role: replica.Decode, URL: "http://" + string(id) + ":8000", Host: string(id),
		Facts: replica.Facts{
			Model: "m", Version: "0.32.0", CacheDType: "auto", Connector: "nixl", PrefixCaching: true,
			Events: replica.EventSource{Endpoint: "tcp://x:5557"}, Tokens: [4]uint64{1, 2, 3, 4},
		},
	}
	for _, c := range change {
		c(&r.Facts)
	}
	return r
}

func pointers(all []replica.Replica) []*replica.Replica {
	out := make([]*replica.Replica, len(all))
	for i := range all {
		out[i] = &all[i]
	}
	return out
}

func names(all []setup.Trouble) (out []string) {
	for _, t := range all {
		out = append(out, t.Name)
	}
	return out
}

// Each missing flag is one trouble, with the flag to write. An unknown fact is no trouble.
func TestAlone(t *testing.T) {
	kv := setup.KV{Connector: "NixlPushConnector", Series: "nixl"}
	everything := setup.Wanted{Split: true, Events: true, KV: kv}
	for _, c := range []struct {
		name   string
		change func(*replica.Facts)
		want   setup.Wanted
		found  []string
		do     string
	}{
		{"sound", func(*replica.Facts) {}, everything, nil, ""},
		{
			"no connector", func(f *replica.Facts) { f.Connector = "" }, everything,
			[]string{setup.NoConnector},
			`"kv_connector":"NixlPushConnector","kv_role":"kv_consumer"`,
		},
		{"no connector, and none is needed", func(f *replica.Facts) { f.Connector = "" }, setup.Wanted{}, nil, ""},
		{
			"no metrics to tell of a connector",
			func(f *replica.Facts) { f.Connector, f.CacheDType = "", "" },
			everything, nil, "",
		},
		{
			"a store before NIXL", func(f *replica.Facts) { f.FirstConnector = "offloading" }, everything,
			[]string{setup.NIXLBehind},
			"name NIXL first",
		},
		{"NIXL before a store", func(f *replica.Facts) { f.FirstConnector = "nixl" }, everything, nil, ""},
		{
			"no events", func(f *replica.Facts) { f.Events = replica.EventSource{} }, everything,
			[]string{setup.NoEvents},
			`"enable_kv_cache_events":true`,
		},
		{
			"no events, of an engine that cannot be asked",
			func(f *replica.Facts) { f.Events, f.Version = replica.EventSource{}, "0.24.0" },
			everything,
			[]string{setup.NoEvents},
			"pools.decode.replicas: [{url: http://d0:8000, events: {endpoint: tcp://d0:5557, replay: tcp://d0:5657}}]",
		},
		{
			"events are not wanted", func(f *replica.Facts) { f.Events = replica.EventSource{} },
			setup.Wanted{Split: true},
			nil, "",
		},
		{
			"no prefix caching", func(f *replica.Facts) { f.PrefixCaching = false }, everything,
			[]string{setup.NoPrefixCaching},
			"without --no-enable-prefix-caching",
		},
		{
			"nothing", func(f *replica.Facts) { *f = replica.Facts{CacheDType: "auto"} }, everything,
			[]string{setup.NoConnector, setup.NoPrefixCaching, setup.NoEvents},
			"",
		},
	} {
		r := sound("d0", c.change)
		got := setup.Alone(&r, c.want)
		if !slices.Equal(names(got), c.found) {
			t.Errorf("%s: %q, want %q", c.name, names(got), c.found)
		}
		if c.do != "" && !strings.Contains(got[0].Do, c.do) {
			t.Errorf("%s: do %q, want %q in it", c.name, got[0].Do, c.do)
		}
	}
}

// The engine that differs is reported. If only two engines differ, both are reported. An engine without a
// known value is not reported. Engines of other models are not compared.
func TestBeside(t *testing.T) {
	version := func(v string) func(*replica.Facts) { return func(f *replica.Facts) { f.Version = v } }
	tokens := func(n int, hash uint64) func(*replica.Facts) {
		return func(f *replica.Facts) { f.Tokens[n] = hash }
	}
	other := func(f *replica.Facts) { f.Model = "another" }
	rank := func(r replica.Replica, url string) replica.Replica { r.URL = url; return r }
	for _, c := range []struct {
		name  string
		all   []replica.Replica
		found [][]string
	}{
		{"alike", []replica.Replica{sound("a"), sound("b")}, [][]string{nil, nil}},
		{
			"one of three",
			[]replica.Replica{sound("a"), sound("b", version("0.33.0")), sound("c")},
			[][]string{nil, {setup.OtherVersion}, nil},
		},
		{
			"one of two",
			[]replica.Replica{sound("a"), sound("b", version("0.33.0"))},
			[][]string{{setup.OtherVersion}, {setup.OtherVersion}},
		},
		{"unknown", []replica.Replica{sound("a"), sound("b", version(""))}, [][]string{nil, nil}},
		{"another model", []replica.Replica{sound("a"), sound("b", other, version("1"))}, [][]string{nil, nil}},
		{
			"a template that shows with tools alone",
			[]replica.Replica{sound("a"), sound("b"), sound("c", tokens(2, 9))},
			[][]string{nil, nil, {setup.OtherTokenizer}},
		},
		{"nobody renders", []replica.Replica{sound("a"), sound("b", tokens(3, 0))}, [][]string{nil, nil}},
		{
			"ranks of one server count once",
			[]replica.Replica{
				rank(sound("a/dp0", version("0.33.0")), "http://a"), rank(sound("a/dp1", version("0.33.0")), "http://a"),
				sound("b"), sound("c"),
			},
			[][]string{{setup.OtherVersion}, {setup.OtherVersion}, nil, nil},
		},
	} {
		got := setup.Beside(pointers(c.all))
		for i := range got {
			if !slices.Equal(names(got[i]), c.found[i]) {
				t.Errorf("%s: %s has %q, want %q", c.name, c.all[i].ID, names(got[i]), c.found[i])
			}
		}
	}
	odd := setup.Beside(pointers([]replica.Replica{sound("a"), sound("b", version("0.33.0")), sound("c")}))[1][0]
	if want := "engines differ, vLLM: 0.32.0 (a, c), 0.33.0 (b)"; odd.Seen != want {
		t.Errorf("seen %q, want %q", odd.Seen, want)
	}
}

// If two engines differ in a setting that KV transfers depend on, the flag is named. Unknown or equal
// settings name nothing.
func TestApart(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*replica.Facts)
		want   []string
	}{
		{"alike", func(*replica.Facts) {}, nil},
		{"unknown", func(f *replica.Facts) { *f = replica.Facts{} }, nil},
		{"model", func(f *replica.Facts) { f.Root = "/models/other" }, []string{"same --model:"}},
		{"version", func(f *replica.Facts) { f.Version = "0.33.0" }, []string{"one version"}},
		{"KV type", func(f *replica.Facts) { f.CacheDType = "fp8" }, []string{"--kv-cache-dtype"}},
		{
			"connector", func(f *replica.Facts) { f.Connector = "moriio" },
			[]string{`start d0 with --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"`},
		},
		{"block size", func(f *replica.Facts) { f.BlockSize = 32 }, []string{"--block-size"}},
		{"served name", func(f *replica.Facts) { f.Models = []string{"n"} }, []string{"--served-model-name"}},
		{
			"two", func(f *replica.Facts) { f.CacheDType, f.BlockSize = "fp8", 32 },
			[]string{"--kv-cache-dtype", "--block-size"},
		},
	} {
		told := func(f *replica.Facts) {
			f.Root, f.BlockSize = "/models/m", 16
			f.Models = []string{"m"}
		}
		p, d := sound("p0", told), sound("d0", told, c.change)
		p.Role = replica.Prefill
		got := setup.Apart(setup.KV{Connector: "NixlConnector"}, &p, &d)
		if !slices.EqualFunc(got, c.want, strings.Contains) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Engines are grouped once for each model, not once for each engine.
func TestAThousandEnginesBesideEachOther(t *testing.T) {
	const n = 200
	all := make([]replica.Replica, n)
	for i := range all {
		all[i].ID, all[i].URL = replica.ID(fmt.Sprint(i)), fmt.Sprint("http://", i)
		all[i].Facts = replica.Facts{Model: "m", Version: "0.33.0", Tokens: [4]uint64{1, 2, 3, 4}}
	}
	if got := testing.AllocsPerRun(1, func() { setup.Beside(pointers(all)) }); got > 40*n {
		t.Errorf("%v allocations for %d engines, want at most %d", got, n, 40*n)
	}
}

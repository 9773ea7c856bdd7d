package config

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestDiff(t *testing.T) {
	a := FromFlags("", []string{"p0:1", "p1:1"}, []string{"d0:1"})
	a.APIKeys = []Secret{{Env: "KEY", text: "old"}}
	b := FromFlags(":8443", []string{"p2:1", "p1:1"}, []string{"d0:1"})
	b.APIKeys = []Secret{{Env: "KEY", text: "new"}}
	b.TLS.Cert = "a.pem"
	b.Pools.Prefill.Replicas[1].Place.Rack = "a"
	b.Pools.Prefill.Index = IndexApproximate
	b.Pools.Decode.APIKey = Secret{File: "key"}
	b.Scoring.Alpha = Alpha{Value: 2}
	b.Timeouts.Queue = time.Minute
	a.Routers.Peers = []string{"http://t0:9090", "http://t1:9090"}
	b.Routers.Peers = []string{"http://t2:9090", "http://t0:9090"}

	want := []Change{
		{"listen", ":8000", ":8443", NeedsRestart},
		{"tls.cert", `""`, "a.pem", NeedsRestart},
		{"api_keys", "env KEY", "env KEY with another content", AtOnce},
		{"pools.prefill.replicas[p0:1]", "http://p0:1", "", AtOnce},
		{"pools.prefill.replicas[p1:1].place.rack", `""`, "a", AtOnce},
		{"pools.prefill.replicas[p2:1]", "", "http://p2:1", AtOnce},
		{"pools.prefill.index", "events", "approximate", AtOnce},
		{"pools.decode.api_key", "none", "file key", AtOnce},
		{"scoring.alpha", "auto", "2", AtOnce},
		{"timeouts.queue", "30s", "1m0s", AtOnce},
		{"routers.peers[http://t1:9090]", "http://t1:9090", "", AtOnce},
		{"routers.peers[http://t2:9090]", "", "http://t2:9090", AtOnce},
	}
	if got := Diff(a, b); !slices.Equal(got, want) {
		t.Errorf("got:\n%v\nwant:\n%v", got, want)
	}
	if got := Diff(b, b); got != nil {
		t.Errorf("got %v for two equal configurations, want no change", got)
	}
}

// The work of a comparison grows with the number of replicas, not with the square of this number.
func TestDiffOfManyReplicas(t *testing.T) {
	const n = 1000
	decode := make([]string, n)
	for i := range decode {
		decode[i] = fmt.Sprintf("d%d:1", i)
	}
	a, b := FromFlags("", nil, decode), FromFlags("", nil, decode)
	b.Pools.Decode.Replicas[n/2].Place.Rack = "a"
	var got []Change
	each := testing.AllocsPerRun(1, func() { got = Diff(a, b) }) / n
	if len(got) != 1 || got[0].New != "a" || each > 50 {
		t.Errorf("got %v with %.0f allocations for each replica, want one change with at most 50", got, each)
	}
}

// Diff compares every field. A new field is included without a change of this test.
func TestDiffSeesTheFullFile(t *testing.T) {
	changes := Diff(Default(), parseFile(t, "testdata/full.yaml"))
	seen := map[string]bool{}
	for _, c := range changes {
		seen[general(c.Field)] = true
	}
	full := parseFile(t, "testdata/full.yaml")
	defaults := map[string]string{} // leaves of the full file that have the default value
	for _, f := range fields() {
		if f.def.IsValid() && !seen[f.path] {
			defaults[f.path] = show(f.def)
		}
	}
	for _, path := range []string{"connector.type", "tracing.file", "pools.POOL.tls.insecure_skip_verify"} {
		delete(defaults, path)
	}
	if len(defaults) > 0 {
		t.Errorf("got no change of %v, want one for each, in %+v", defaults, full)
	}
}

func TestEffect(t *testing.T) {
	for field, want := range map[string]string{
		"listen": NeedsRestart, "tls.key": AtOnce, "admin.listen": NeedsRestart, "tracing.sample": NeedsRestart,
		"log.format": NeedsRestart,
		"log.level":  AtOnce, "pools.prefill.tls.key": AtOnce, "scoring.beta": AtOnce, "api_keys": AtOnce,
	} {
		if got := Effect(field); got != want {
			t.Errorf("Effect(%q) = %q, want %q", field, got, want)
		}
	}
}

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestQuotient(t *testing.T) {
	b := &bench{samples: map[string][]float64{}}
	for _, x := range []float64{30, 20} {
		b.add("tandem_rps", x)
		b.add("peer_rps", 10)
		b.quotient("peer_rps_ratio", "tandem_rps", "peer_rps")
	}
	if got := b.samples["peer_rps_ratio"]; !slices.Equal(got, []float64{3, 2}) {
		t.Errorf("ratios = %v", got)
	}
	b.add("peer_rps", 0)
	b.quotient("peer_rps_ratio", "tandem_rps", "peer_rps")
	b.quotient("other_ratio", "tandem_rps", "nothing")
	if len(b.samples["peer_rps_ratio"]) != 2 || b.samples["other_ratio"] != nil {
		t.Errorf("ratios over nothing: %v", b.samples)
	}
}

// Every ratio with a target is measured, and every figure of a ratio has a unit.
func TestPeerTargets(t *testing.T) {
	taken := map[string]bool{}
	for _, r := range peerRatios {
		taken[r.name] = true
		if unit(r.name) != "x" || unit(theirs+r.of) == "" {
			t.Errorf("%s is in %q, %s in %q", r.name, unit(r.name), theirs+r.of, unit(theirs+r.of))
		}
	}
	for name := range targets {
		if strings.HasPrefix(name, "peer_") && !taken[name] {
			t.Errorf("%s has a target and is not measured", name)
		}
	}
}

// A measurement of a front that does not split every request is an error.
func TestSplitShare(t *testing.T) {
	finished := 100.0
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "vllm:request_success_total{engine=\"0\"} %v\n", finished)
	}))
	defer engine.Close()
	prefill := []string{strings.TrimPrefix(engine.URL, "http://")}
	b := &bench{samples: map[string][]float64{}}
	if err := b.splitShare(ours, prefill, 0, 100); err != nil {
		t.Error(err)
	}
	if err := b.splitShare(ours, prefill, 50, 100); err == nil {
		t.Error("half of the requests were not split, and no error says so")
	}
	if got := b.samples["tandem_split_share"]; !slices.Equal(got, []float64{1, 0.5}) {
		t.Errorf("shares = %v", got)
	}
}

func TestFollowsEvents(t *testing.T) {
	text := ""
	admin := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }),
	)
	defer admin.Close()
	addr := strings.TrimPrefix(admin.URL, "http://")
	text = "tandem_index_trust{pool=\"prefill\",replica=\"a\",state=\"live\"} 1\n" +
		"tandem_index_trust{pool=\"decode\",replica=\"b\",state=\"live\"} 1\n"
	if err := followsEvents(addr, 2); err != nil {
		t.Error(err)
	}
	text = strings.Replace(text, "1\n", "0\n", 1)
	if err := followsEvents(addr, 2); err == nil {
		t.Error("one of two indexes is not live, and no error says so")
	}
}

// Part peers runs only when it is named.
func TestPeersAreAsked(t *testing.T) {
	for only, want := range map[string]string{"": "front idle micro index", "front": "front", "peers": "peers"} {
		if got := strings.Join(chosen(only), " "); got != want {
			t.Errorf("-only %q: %q, want %q", only, got, want)
		}
	}
	if _, err := parseOptions([]string{"-only", "frontt"}); err == nil {
		t.Error("-only frontt passes")
	}
}

// Figures in the file stay if they are not measured again, and are replaced if they are.
func TestWriteKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "build", "bench.json")
	write := func(name string, v float64) {
		t.Helper()
		b := &bench{log: io.Discard, samples: map[string][]float64{}}
		b.add(name, v)
		if err := b.write(path); err != nil {
			t.Fatal(err)
		}
	}
	write("front_rps", 1)
	write("peer_rps_ratio", 2)
	write("front_rps", 3)
	got, err := readFigures(path)
	if err != nil || len(got) != 2 || got[0].Name != "front_rps" || got[0].Value != 3 || got[1].Value != 2 {
		t.Errorf("figures = %+v %v", got, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&bench{}).write(path); err == nil {
		t.Error("a broken file is overwritten")
	}
}

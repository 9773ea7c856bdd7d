package fleet

import (
	"bytes"
	"context"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
)

// A replica whose name has two addresses is reported in one line, with the setting to write.
func TestANameWithSeveralAddressesIsSaid(t *testing.T) {
	var log bytes.Buffer
	w, _ := learned(t, &log)
	w.fleet.opt.LookUp = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
	}
	w.warnOfAddresses(t.Context())
	text := log.String()
	if strings.Count(text, "has several addresses") != 1 || !strings.Contains(text, "discovery: {dns: {") {
		t.Errorf("want one line with what to write:\n%s", text)
	}
}

// Each data-parallel rank of an engine has a P2P tier at a port of its own, counted from the port of the
// engine.
func TestRanksListenAtPortsOfTheirOwn(t *testing.T) {
	cfg := config.Default()
	cfg.Connector.PullPort = 5710
	cfg.Pools.Prefill.Replicas = []config.Replica{
		{URL: "http://p0:8000"}, {URL: "http://p1:8000", PullPort: 6000},
	}
	f, _ := fleetOf(t, cfg, new(bytes.Buffer), func() {})
	got := map[string]int{}
	for _, w := range f.Watchers() {
		if err := w.accept([]replica.Facts{{Model: "m"}, {Model: "m"}}); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.Members() {
			got[string(m.ID)] = m.PullPort
		}
	}
	want := map[string]int{"p0:8000/dp0": 5710, "p0:8000/dp1": 5711, "p1:8000/dp0": 6000, "p1:8000/dp1": 6001}
	if !maps.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
}

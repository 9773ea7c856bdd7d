package orchestrator

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/peers"
)

// promised returns the metrics that docs/metrics.md names, in its order.
func promised(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`tandem_[a-z0-9_]+`).FindAllString(string(page), -1) {
		for _, series := range []string{"_bucket", "_count", "_sum"} { // a histogram in an example
			m = strings.TrimSuffix(m, series)
		}
		ours := m != "tandem_build_info" && m != "tandem_log_lines_lost_total" // not from package telemetry
		if ours && !slices.Contains(names, m) {
			names = append(names, m)
		}
	}
	return names
}

// docs/metrics.md names exactly the metrics that exist.
func TestMetricsPageAgreesWithTheCode(t *testing.T) {
	documented := promised(t)
	registry := &naming{}
	newMetrics(registry)
	registry.MustRegister(observe.NewCollector(nil, observe.Collected{}))
	peers.New(peers.Options{Registry: registry})
	fleet.New(fleet.Options{Registry: registry})
	for _, n := range registry.names {
		if !slices.Contains(documented, n) {
			t.Errorf("%s is not in docs/metrics.md", n)
		}
	}
	for _, n := range documented {
		if !slices.Contains(registry.names, n) {
			t.Errorf("docs/metrics.md names %s, which does not exist", n)
		}
	}
}

// naming is a registry that only records names.
type naming struct{ names []string }

var descName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n *naming) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 64)
	c.Describe(ch)
	close(ch)
	for d := range ch {
		n.names = append(n.names, descName.FindStringSubmatch(d.String())[1])
	}
	return nil
}

func (n *naming) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = n.Register(c)
	}
}

func (n *naming) Unregister(prometheus.Collector) bool { return false }

package enginesim

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

var notSimulated = regexp.MustCompile(`^vllm:nixl_(xfer|post|bytes|num_descriptors)|^http_`)

// buckets returns the lines of histograms without their values.
func buckets(metrics string) string {
	var all []string
	for line := range strings.Lines(metrics) {
		name, _, _ := strings.Cut(line, " ")
		if regexp.MustCompile(`_(bucket|count|sum)\{`).MatchString(name) && !notSimulated.MatchString(name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, "\n")
}

// Names, labels, buckets and their order equal vLLM's.
func TestHistogramsLookLikeVLLM(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{Model: "tiny", ZeroLatency: true, Core: core.Config{MaxModelLen: 4096}})
	_, _, got := getRaw(t, s, "/metrics")
	for _, g := range readGolden(t) {
		if g.Request.Path != "/metrics" {
			continue
		}
		if got, want := buckets(got), buckets(g.Body); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// A server with speculation reports its drafts; a server without it has no such series.
func TestSpeculationInMetrics(t *testing.T) {
	noLeaks(t)
	for _, k := range []int{0, 4} {
		s := fastServer(t, core.Config{Speculative: k})
		post(t, s, "/v1/completions", completionBody(prompt(1, 20), 30, "null"))
		_, _, body := getRaw(t, s, "/metrics")
		if told := strings.Contains(body, "\nvllm:spec_decode_num_drafts_total{"); told != (k > 0) {
			t.Errorf("%d drafts: series present: %v", k, told)
		}
	}
}

package fleet

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// A restart of an engine shows twice, in its metrics and in its stream of events, in either order. One line
// warns about the restart, with the cause. A later loss has a line of its own.
func TestARestartIsLoggedOnce(t *testing.T) {
	const byMetrics, byEvents = "the engine was restarted", "engine restarted: sequence fell back"
	for _, tt := range []struct {
		name string
		seen []string // causes, in turn; "" is a scrape that finds the same process as before
		want []string // the lines of want that are warnings
	}{
		{"metrics first", []string{byMetrics, "engine restarted: its process is another one"}, []string{byMetrics}},
		{
			"events first",
			[]string{byEvents, byMetrics, "engine restarted: its process is another one"},
			[]string{byEvents},
		},
		{
			"and batches are lost",
			[]string{byMetrics, "engine restarted: x", "3 batches are lost"},
			[]string{byMetrics, "3 batches are lost"},
		},
		{
			"batches are lost, and then it restarts",
			[]string{"3 batches are lost", byMetrics},
			[]string{"3 batches are lost", byMetrics},
		},
		{
			"twice",
			[]string{byEvents, byMetrics, "engine restarted: x", "", byMetrics, "engine restarted: x"},
			[]string{byEvents, byMetrics},
		},
		{
			"its events begin anew, and its process does not",
			[]string{byEvents, "", byMetrics},
			[]string{byEvents, byMetrics},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			w, _ := learned(t, &log)
			f := &Stream{id: w.Members()[0].ID}
			s := newSink(&w.streams, f)
			f.follower = kvevents.NewFollower(kvevents.Source{}, s, kvevents.Options{})
			w.streams.streams = []*Stream{f}
			for _, cause := range tt.seen {
				switch cause {
				case "":
					w.observe(&engine.Metrics{})
				case byMetrics:
					w.forgetRestarted()
				default:
					s.Forget(cause)
				}
			}
			var reported []string
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level="+slog.LevelWarn.String()) && strings.Contains(line, "forgotten") {
					reported = append(reported, line)
				}
			}
			if len(reported) != len(tt.want) {
				t.Fatalf("warned %d times, want %d:\n%s", len(reported), len(tt.want), strings.Join(reported, ""))
			}
			for i, want := range tt.want {
				if !strings.Contains(reported[i], want) {
					t.Errorf("line %d is %s\nwant the cause %q", i, reported[i], want)
				}
			}
		})
	}
}

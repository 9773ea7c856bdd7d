package orchestrator

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// Engines that send an answer more than they were asked for, once the next request on the connection has gone
// out: each client gets its own answer all the same. Nothing but the name tells the two answers apart.
func TestStrayAnswersGoToNobody(t *testing.T) {
	for _, row := range []struct {
		name           string
		inBody, stream bool // the engines repeat request ids in bodies alone; clients want streams
	}{
		{name: "named in the head"},
		{name: "streams, named in the head", stream: true},
		{name: "named in the body", inBody: true},
		{name: "streams, named in the body", inBody: true, stream: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := setup{engine: func(_ string, o *enginesim.Options) { o.NoRequestIDs = row.inBody }}
			in(t, s, func(w *world) {
				for _, e := range []*simulated{w.p[0], w.d[0]} {
					if err := e.Fault(enginesim.Fault{Kind: "stray", Count: -1}); err != nil {
						t.Fatal(err)
					}
				}
				for i := range 20 {
					p := guardedPrompt(idPrompt(i, 100), strings.TrimSuffix(","+streaming(row.stream), ","))
					w.exact(p, w.ask(p))
				}
				// One for each of the two engines: then no connection to them is kept.
				if n := w.count("tandem_retries_total", ""); n != 2 {
					t.Errorf("%d retries, want 2", n)
				}
			})
		})
	}
}

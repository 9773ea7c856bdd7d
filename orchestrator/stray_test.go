package orchestrator

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// Engines send one more answer than they were asked for, after the next request on the connection was
// sent. Each client still gets its own answer. Only the request id tells the two answers apart.
func TestStrayAnswersGoToNobody(t *testing.T) {
	for _, row := range []struct {
		name           string
		inBody, stream bool // engines repeat request ids only in bodies; clients ask for streams
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
				// One retry for each of the two engines: after that no connection to them is kept.
				if n := w.count("tandem_retries_total", ""); n != 2 {
					t.Errorf("%d retries, want 2", n)
				}
			})
		})
	}
}

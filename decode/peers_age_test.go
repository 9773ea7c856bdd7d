package decode

import (
	"math"
	"testing"
	"time"
)

// Between two reports of another router, its usual share of a replica's time is added to the wait for local
// prefills, whether the prompt would be sent in pieces or whole.
func TestOtherRoutersGoOnBookingBetweenReports(t *testing.T) {
	for _, pieces := range []bool{false, true} {
		p := pool(0)
		p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 256, Piece: 150 * time.Millisecond})
		p.MergePeer("b", []PeerLoad{{ID: "d1", Rho: 0.5}}, start)
		for _, after := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
			q := &Query{Model: "m", Tokens: 160, MaxTokens: 160, Pieces: pieces}
			c, _, _ := p.Candidates(q, start.Add(after), nil, nil)
			if got, want := c[0].Local.Wait, 0.5*after.Seconds(); math.Abs(got-want) > 1e-9 {
				t.Errorf("pieces %v, after %v: %g s to wait, want %g", pieces, after, got, want)
			}
		}
	}
}

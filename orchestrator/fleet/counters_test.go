package fleet

import (
	"testing"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// An engine counts a failed transfer before or after its answer reports the failure. Doubt falls on the
// pairs then in use only if no answer reports the failure, up to the reading after the one that shows it.
func TestFailedTransfersThatAreReportedCastNoDoubt(t *testing.T) {
	for _, tt := range []struct {
		name     string
		reported [3]bool // between the readings; the second reading shows a failed transfer
		want     bool
	}{
		{"nobody tells", [3]bool{}, true},
		{"told before the engine counts it", [3]bool{true, false, false}, false},
		{"told between the readings", [3]bool{false, true, false}, false},
		{"told after the reading that shows it", [3]bool{false, false, true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Transfers
			failures, doubted := 0.0, false
			for i := range 5 {
				for range enough {
					r.Began("p", "d", 1000)
				}
				if i > 0 && i <= len(tt.reported) && tt.reported[i-1] {
					r.Failed()
				}
				if i == 2 {
					failures++
				}
				var rank engine.Rank
				rank.Counters.ExternalHits, rank.Counters.NIXLFailedTransfers = float64(1000*(i+1)), failures
				pairs, why := r.read(engine.Metrics{Ranks: map[int]engine.Rank{0: rank}})
				if len(pairs) > 0 && (pairs[0] != outlier.Pair{Prefill: "p", Decode: "d"} || why == "" || i != 3) {
					t.Errorf("reading %d: %v, %q", i, pairs, why)
				}
				doubted = doubted || len(pairs) > 0
			}
			if doubted != tt.want {
				t.Errorf("doubted %v, want %v", doubted, tt.want)
			}
		})
	}
}

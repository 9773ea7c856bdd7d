package policies

import (
	"strconv"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/prefill"
)

// sharing is a router's state for reports to the other routers.
type sharing struct {
	every   time.Duration // interval of reports
	guesses bool          // reports include the sent prompts
	guessed [2]uint64     // prompts reported so far, by cluster.Side
}

var _ cluster.Sharer = (*Tandem)(nil)

// told is one router's report to the others.
type told struct {
	prefill  []prefill.PeerLoad
	decode   []decode.PeerLoad
	computed []prefill.Guess // prompts sent since the last report, by the replica that computes them
	held     []decode.Guess  // and by the replica that will hold them
}

// ShareEvery is the interval of the reports.
func (t *Tandem) ShareEvery() time.Duration { return t.sharing.every }

// Share reports all bookings.
func (t *Tandem) Share(now time.Time) any {
	said := told{prefill: t.prefill.PeerLoads(now), decode: t.decode.PeerLoads(now)}
	if t.sharing.guesses {
		said.computed, t.sharing.guessed[cluster.Prefill] = t.prefill.Guesses(t.sharing.guessed[cluster.Prefill])
		said.held, t.sharing.guessed[cluster.Decode] = t.decode.Guesses(t.sharing.guessed[cluster.Decode])
	}
	return said
}

// Hear takes in another router's report.
func (t *Tandem) Hear(from int, said any, now time.Time) {
	other := said.(told)
	t.prefill.MergePeer(strconv.Itoa(from), other.prefill, now)
	t.decode.MergePeer(strconv.Itoa(from), other.decode, now)
	t.prefill.MergeGuesses(other.computed, now)
	t.decode.MergeGuesses(other.held, now)
}

package policies

import (
	"strconv"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/prefill"
)

// sharing is what a router tells others.
type sharing struct {
	every   time.Duration // between two times
	guesses bool          // of the prompts that were sent, too
	guessed [2]uint64     // up to which, by cluster.Side
}

var _ cluster.Sharer = (*Tandem)(nil)

// told is one router's report to the others.
type told struct {
	prefill  []prefill.PeerLoad
	decode   []decode.PeerLoad
	computed []prefill.Guess // prompts that were sent since, where they are computed
	held     []decode.Guess  // and where they will be
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

package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/roster"
)

// localPrompts are the prompts that one replica computes itself: prompts in its queue, and prompts that other
// routers report. The methods say how long these prompts take.
type localPrompts struct {
	turns  turns.Turns      // of this router's prompts
	theirs *ledger.PeerLoad // the sum of the other routers' reports
}

// front returns the prompt of this router that is computed first.
func (l *localPrompts) front() roster.Front {
	f := roster.Front{Ended: l.turns.EndedAt()}
	if first := l.turns.Head(); first != nil {
		f.Work, f.At = first.Predicted, first.BookedAt
	}
	return f
}

// queued returns the predicted time until the prompts of this router are done, given that the first has run
// for a while.
func (l *localPrompts) queued(now time.Time) time.Duration {
	if l.turns.Empty() {
		return 0
	}
	return l.turns.Work() - l.front().Ran(now)
}

// doubtful reports whether this router has no prompt there now, and had its last prompt long ago.
func (l *localPrompts) doubtful(now time.Time) bool { return estimate.InDoubt(l.turns.LeftAt(), now) }

// empty reports whether the replica computes no prompt now, for any router.
func (l *localPrompts) empty() bool { return l.turns.Empty() && !l.forOthers() }

// forOthers reports whether the replica computes a prompt for another router.
func (l *localPrompts) forOthers() bool { return l.theirs.Work > 0 || l.theirs.First.Any() }

// wait returns the predicted time until all prompts are computed, of all routers.
func (l *localPrompts) wait(now time.Time) time.Duration {
	if l.theirs.Work > 0 || l.theirs.First.Reported() {
		return l.theirs.First.Left(l.turns.Work(), l.theirs.Work, l.front(), now)
	}
	return l.queued(now)
}

// before returns the seconds until all prompts are done that go before a prompt with this turn, of all
// routers. lasts is the prompt's own time. longer is how many prompts it overtakes.
func (l *localPrompts) before(due int64, lasts float64, now time.Time) (wait float64, longer int) {
	if l.empty() {
		return 0, 0
	}
	e, front := l.theirs, l.front()
	longer, later := l.turns.After(due)
	work := l.turns.Work() - later
	if first := l.turns.Head(); first != nil && first.On && first.Due > due {
		front.Work = 0
	}
	first, others := e.First, e.Work
	if e.Pieces > 0 && e.PiecesWork.Seconds() > lasts*float64(e.Pieces) { // as they are on average
		longer += e.Pieces
		if others -= e.PiecesWork; others+first.Ran <= 0 {
			first, others = roster.Running{}, 0
		}
	}
	return first.Left(work, others, front, now).Seconds(), longer
}

// blocksFor returns how long the replica admits no other request because it computes prompts. Prompts in
// pieces count as one piece.
func (l *localPrompts) blocksFor(now time.Time, piece float64) time.Duration {
	if piece == 0 {
		return l.wait(now)
	}
	wait, longer := l.before(math.MinInt64, 0, now)
	if longer > 0 {
		wait += piece
	}
	return seconds(wait)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

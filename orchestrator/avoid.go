package orchestrator

import (
	"errors"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A retried request avoids the replicas that failed it. Avoiding is a preference. If no other replica of a
// pool is left, replicas that may not be at fault are used first. Then come the replicas that failed longest
// ago, which may work again. Only the replica of the newest attempt is not asked again at once.

// attempts holds the attempts of a job so far, and what the next attempt has to know.
type attempts struct {
	tries      int
	faults     planner.FailedAttempts // the replicas and pairs that were blamed for failed attempts
	budgeted   bool                   // the job holds a place in the retry budget
	failedAt   replica.ID             // replica of the newest failed attempt
	failedWhen phase                  // phase of the newest failure
	avoided    []avoided              // replicas that the job avoids for its failures, oldest first
	// Two replicas have reported the same failure: only a replica that was not asked yet can decide.
	third bool
}

// notAtOnce is the length of the pause. A request that waited longer for room may find no other replica.
const notAtOnce = time.Second

// avoided is a replica that the job avoids because an attempt failed there.
type avoided struct {
	id    replica.ID
	role  replica.Role
	try   int // number of the attempt
	at    time.Time
	doubt bool // the other end of the transfer is as likely at fault
}

// avoidFailed makes the job avoid the replicas of its newest attempt. If a decode replica failed after a
// prefill, it may have failed to load the blocks. The prefill replica may equally be at fault. So the job
// avoids both, and their pair for good. A replica that only has the name of a replica that left has not
// failed.
func (t *attempts) avoidFailed(plan *planner.Request, f *failure) {
	switch {
	case f.at == "", f.replaced:
	case f.kind == kindSource:
		t.avoid(plan, f.at, replica.Prefill, false)
		t.avoid(plan, f.at, replica.Decode, false)
	case f.phase == phasePrefill:
		t.avoid(plan, f.at, replica.Prefill, false)
	case f.source != "":
		t.avoid(plan, f.at, replica.Decode, true)
		t.avoid(plan, f.source, replica.Prefill, true)
		plan.AvoidPairs = append(plan.AvoidPairs, planner.Pairing{Prefill: f.source, Decode: f.at})
	default:
		t.avoid(plan, f.at, replica.Decode, false)
	}
}

func (t *attempts) avoid(plan *planner.Request, id replica.ID, role replica.Role, doubt bool) {
	t.avoided = append(t.avoided, avoided{id, role, t.tries, time.Now(), doubt})
	list := avoidedOf(plan, role)
	*list = append(*list, id)
}

// avoidedOf returns the planner's list of avoided replicas of a pool. The list also holds replicas that must
// never be asked. They come before those of [attempts.avoided].
func avoidedOf(plan *planner.Request, role replica.Role) *[]replica.ID {
	if role == replica.Prefill {
		return &plan.AvoidPrefill
	}
	return &plan.AvoidDecode
}

// onlyInDoubt reports whether a is a prefill replica that did not fail itself: a decode replica failed after
// its prefill. A third decode replica may get its blocks.
func (a *avoided) onlyInDoubt() bool { return a.role == replica.Prefill && a.doubt }

// relent lets an avoided replica take part again, of the pool that has no replica left, or of either pool if
// no pair is left. It reports whether there was such a replica. A replica that failed never gives a third
// opinion.
func (t *attempts) relent(plan *planner.Request, none *planner.NoReplica) bool {
	best := -1
	for i := range t.avoided {
		a := &t.avoided[i]
		justNow := a.try == t.tries-1 && time.Since(a.at) < notAtOnce
		if none.Pool != "pair" && none.Pool != a.role.String() || !a.doubt && justNow ||
			t.third && !a.onlyInDoubt() {
			continue
		}
		if best < 0 || a.doubt && !t.avoided[best].doubt {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	a := t.avoided[best]
	t.avoided = slices.Delete(t.avoided, best, best+1)
	list := avoidedOf(plan, a.role)
	for i, id := range slices.Backward(*list) {
		if id == a.id {
			*list = slices.Delete(*list, i, i+1)
			break
		}
	}
	return true
}

// noReplica returns the error of a pool without a replica, nil for any other error.
func noReplica(err error) *planner.NoReplica {
	none, _ := errors.AsType[*planner.NoReplica](err)
	return none
}

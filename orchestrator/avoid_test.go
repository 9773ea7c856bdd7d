package orchestrator

import (
	"testing"
	"testing/synctest"
	"time"

	"tandem/internal/replica"
	"tandem/orchestrator/planner"
)

// Who failed in the newest attempt is not asked again at once where nobody else is left, and is after a
// while: the request may have waited for room for long, and the replica may be another process by then.
func TestWhoFailedIsAskedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &job{}
		j.avoid("d0", replica.Decode, false)
		j.attempts.tries = 1
		none := &planner.NoReplica{Pool: "decode"}
		time.Sleep(notAtOnce - time.Millisecond)
		if j.relent(none) || len(j.plan.AvoidDecode) != 1 {
			t.Error("it is asked again at once")
		}
		time.Sleep(time.Millisecond)
		if !j.relent(none) || len(j.plan.AvoidDecode) != 0 {
			t.Error("it is not asked again, though nobody else is left")
		}
	})
}

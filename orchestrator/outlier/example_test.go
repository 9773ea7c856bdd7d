package outlier_test

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// A leg that fails three times in a row is ejected. After a successful trial of the router it gets one
// request at first, and then more.
func ExampleSet() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var set outlier.Set
	set.Configure(outlier.Settings{Failures: 3, Base: time.Second, Max: time.Minute, Trials: true})
	show := func(changes []outlier.Change) {
		for _, c := range changes {
			fmt.Printf("%s of %s is %s: %s\n", c.Leg, c.ID, c.To, c.Cause)
		}
	}
	for range 3 {
		attempt := set.Begin("d1", outlier.Decode, now)
		show(attempt.Bad(outlier.Failure{Kind: outlier.ServerError, Took: 50 * time.Millisecond}, now))
		attempt.End()
	}
	fmt.Println("out:", set.Look("d1", outlier.Decode, now).Out)
	fmt.Println("its other leg:", set.Look("d1", outlier.Whole, now).Out)

	now = now.Add(2 * time.Second)
	for _, trial := range set.Due(now, func(replica.ID) bool { return true }) {
		show(set.Passed(trial, now))
	}
	fmt.Println("out:", set.Look("d1", outlier.Decode, now).Out)
	// Output:
	// decode of d1 is ejected: failures in a row, the last: server error
	// out: true
	// its other leg: false
	// decode of d1 is half-open: failures in a row, the last: server error
	// out: false
}

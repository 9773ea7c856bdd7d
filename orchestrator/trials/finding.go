package trials

import "github.com/tandem-router/tandem/orchestrator/outlier"

// Result is the result of a trial, or of a part of a trial.
type Result uint8

// The results of a trial.
const (
	Unclear Result = iota // the trial could not be made, or failed for a reason outside the replica
	Works
	Fails
)

// String is the result's name in metrics.
func (r Result) String() string { return [...]string{"unclear", "passed", "failed"}[r] }

// Finding is the result of a trial, with the kind of failure and the evidence. The zero value shows nothing.
type Finding struct {
	Result Result
	Kind   outlier.Kind // of a failed trial
	Why    string

	old bool // no result, because a kept connection grew too old during the trial
}

// onceMore makes a trial, and repeats it if a connection grew too old meanwhile. The second trial uses
// another canary, because transfer parameters are good for one use. Each trial has a time limit of its own.
func onceMore(trial func() Finding) Finding {
	got := trial()
	if got.old {
		got = trial()
	}
	return got
}

package trials

import "github.com/tandem-router/tandem/orchestrator/outlier"

// Result is what a trial, or a part of it, has shown.
type Result uint8

// The results of a trial.
const (
	Unclear Result = iota // the trial could not be made, or failed for another reason than its own
	Works
	Fails
)

// String is the result's name in metrics.
func (r Result) String() string { return [...]string{"unclear", "passed", "failed"}[r] }

// Finding is what a trial has shown, with the kind of failure and the evidence. The zero value shows nothing.
type Finding struct {
	Result Result
	Kind   outlier.Kind // where it fails
	Why    string

	old bool // nothing was shown, since a kept connection grew too old under the trial
}

// onceMore makes a trial, and once more where a connection grew too old under it: with another canary, since
// transfer parameters are good for one use. A trial has a time of its own each.
func onceMore(trial func() Finding) Finding {
	got := trial()
	if got.old {
		got = trial()
	}
	return got
}

package estimate

import "time"

// Prompts is what is learned of how fast one replica computes prompts. The zero Prompts knows nothing.
type Prompts struct {
	Fit  DecayingFit
	span BusySpan
}

// Spoil says that the replica spends time on something else, too, which nobody can tell apart.
func (r *Prompts) Spoil() { r.span.Spoil() }

// GaveUp says that a prompt was given up, or that nobody saw when it was there. idle says that the replica
// has no other prompt to compute.
func (r *Prompts) GaveUp(idle bool) { r.span.GaveUp(idle) }

// Last returns when the newest prompt was there, the zero time before the first.
func (r *Prompts) Last() time.Time { return r.span.Last() }

// Replica is what is learned of one replica of the decode pool. The zero Replica knows nothing.
//
// Long: one room holds all that is learned of one replica.
type Replica struct {
	Prompts             // that it computes itself
	Steps   DecayingFit // decode steps
	Traffic Traffic

	pace   pace    // of streams under way, of which Steps are learned too
	cuts   cuts    // how it cuts prompts
	heldUp float64 // seconds for prompts, for each second of decode steps of late
	// Seconds for which it makes no step, for each token whose blocks it reads from elsewhere; and all of them.
	posting, posted float64
	decoded         decoded
}

// Traffic is how much of late was booked on a replica.
type Traffic struct {
	Inbound  ArrivalRate // of prompts whose blocks come
	Requests ArrivalRate // of all requests, those too whose prompts it computes
	Prefills Utilization // by the prompts that it computes
}

// State returns what is known of the speed of r, as it outlives a process; false where that is nothing.
func (r *Replica) State() (s Speeds, known bool) {
	if f, ok := r.Prompts.Fit.State(); ok {
		s.Prefill, known = &f, true
	}
	if f, ok := r.Steps.State(); ok {
		s.Steps, known = &f, true
	}
	return s, known
}

// Restore lets r begin with what was measured before, where nothing was measured yet. It reports whether
// anything was taken.
func (r *Replica) Restore(s Speeds, now time.Time) (taken bool) {
	if s.Prefill != nil && r.Prompts.Fit.Restore(*s.Prefill, now) {
		taken = true
	}
	if s.Steps != nil && r.Steps.Restore(*s.Steps, now) {
		taken = true
	}
	return taken
}

// Recall takes back that r was taken to be faster than it was measured, so that somebody would try it: now
// somebody does.
func (r *Replica) Recall(now time.Time) {
	r.Prompts.Fit.Recall(now)
	r.Steps.Recall(now)
}

// PerToken returns how many times as long as a step it took r lately from one token of an answer to the
// next, since it computed prompts meanwhile.
func (r *Replica) PerToken() float64 { return 1 + r.heldUp }

// learnPerToken takes in of which part of its time the steps of an answer were.
func (r *Replica) learnPerToken(own float64) {
	r.heldUp += heldUpLearns * (min(1/own-1, mostHeldUp) - r.heldUp)
}

const (
	heldUpLearns = 0.1 // of it an answer teaches
	mostHeldUp   = 9   // times as long as for steps it is waited for prompts, at most
)

// An engine posts the descriptors of a read on the thread that makes its steps: meanwhile all of its streams
// stand still. In a used cache each block and layer has a descriptor of its own, so that this takes as long
// for each block.

// Posting returns the seconds for which r makes no step, for each token that it reads.
func (r *Replica) Posting() float64 { return r.posting }

// SetPosting says for how many seconds r makes no step, for each token whose KV it reads from another
// replica.
func (r *Replica) SetPosting(perToken float64) { r.posting = perToken }

// Posts notes that r reads the blocks of so many tokens from now on.
func (r *Replica) Posts(tokens int) { r.posted += float64(tokens) * r.posting }

// CutsPrompts reports whether the engine cuts prompts so finely itself that pieces are of no use.
func (r *Replica) CutsPrompts(now time.Time) bool { return r.cuts.fine(now) }

// Slowed reports whether what streams under way said last is that r has become slow, and as of when.
func (r *Replica) Slowed() (at time.Time, slowed bool) { return r.pace.until, r.pace.slowed }

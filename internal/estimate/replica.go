package estimate

import "time"

// Prompts holds the learned speed of one replica with prompts. The zero Prompts knows nothing.
type Prompts struct {
	Fit   DecayingFit
	span  BusySpan
	reads ReadBacks
}

// Spoil records that the replica also spends time on other work, which cannot be told apart.
func (r *Prompts) Spoil() { r.span.Spoil() }

// GaveUp records that a prompt was cancelled, or that its end was not observed. idle says that the replica
// has no other prompt to compute.
func (r *Prompts) GaveUp(idle bool) { r.span.GaveUp(idle) }

// Last returns when the newest prompt was answered, the zero time before the first.
func (r *Prompts) Last() time.Time { return r.span.Last() }

// Replica holds the learned values of one replica of the decode pool. The zero Replica knows nothing.
//
// Long: one struct holds every learned value of one replica.
type Replica struct {
	Prompts             // local prompts
	Steps   DecayingFit // decode steps
	Traffic Traffic

	pace   pace    // of running streams, which also teach Steps
	cuts   cuts    // whether the engine cuts prompts itself
	heldUp float64 // recent seconds of prompts per second of decode steps
	// Seconds without a step per token read from another replica, and their total.
	posting, posted float64
	decoded         decoded
	usual           Load // mean of the loads that Steps was learned at, newer ones count more
}

// Traffic is how much was booked on a replica lately.
type Traffic struct {
	Inbound  ArrivalRate // prompts whose blocks are transferred
	Requests ArrivalRate // all requests, with local prompts
	Prefills Utilization // by local prompts
}

// State returns the saved form of what is known of r, and false if nothing is known.
func (r *Prompts) State() (s Speeds, known bool) {
	if f, ok := r.Fit.State(); ok {
		s.Prefill = &f
	}
	s.Reads = r.readState()
	return s, s.Prefill != nil || s.Reads != nil
}

// State returns the saved form of what is known of r, and false if nothing is known.
func (r *Replica) State() (s Speeds, known bool) {
	s, known = r.Prompts.State()
	if f, ok := r.Steps.State(); ok {
		s.Steps, known = &f, true
	}
	return s, known
}

// RestorePrompts lets r begin with the saved values of its prompts, where r has no samples. It reports
// whether it took anything.
func (p *Pool) RestorePrompts(r *Prompts, s *Speeds, now time.Time) (taken bool) {
	if s.Prefill != nil && r.Fit.Restore(*s.Prefill, now) {
		taken = true
	}
	return p.restoreReads(r, s.Reads, now) || taken
}

// Restore is [Pool.RestorePrompts], and also for the speed of steps.
func (p *Pool) Restore(r *Replica, s *Speeds, now time.Time) (taken bool) {
	taken = p.RestorePrompts(&r.Prompts, s, now)
	if s.Steps != nil && r.Steps.Restore(*s.Steps, now) {
		taken = true
	}
	return taken
}

// Recall undoes the easing of r's estimates. The easing was there to attract a request as a test, and a
// request is being sent now.
func (r *Replica) Recall(now time.Time) {
	r.Prompts.Fit.Recall(now)
	r.Steps.Recall(now)
}

// PerToken returns the recent mean time between two tokens of an answer, in units of a step's time. It is
// above 1 because the replica computes prompts between steps.
func (r *Replica) PerToken() float64 { return 1 + r.heldUp }

// UsualLoad returns the load at which the steps of r were measured lately, zero before the first sample.
func (r *Replica) UsualLoad() Load { return r.usual }

// learnStep takes in the duration of a step, and the load of the step.
func (r *Replica) learnStep(s Sample) {
	weight := loadLearns
	if r.usual.Sequences == 0 {
		weight = 1
	}
	r.usual.Sequences += weight * (max(s.Load.Sequences, 1) - r.usual.Sequences)
	r.usual.Tokens += weight * (s.Load.Tokens - r.usual.Tokens)
	r.Steps.LearnAt(s)
}

// loadLearns is the weight of one sample in the usual load. The usual load forgets like [SpeedFit], so that
// the load stays within what the fit has seen.
const loadLearns = 1 - forgetting

// learnPerToken takes in the share of an answer's time that was decode steps.
func (r *Replica) learnPerToken(own float64) {
	r.heldUp += heldUpLearns * (min(1/own-1, mostHeldUp) - r.heldUp)
}

const (
	heldUpLearns = 0.1 // weight of one answer
	mostHeldUp   = 9   // most seconds of prompts per second of steps
)

// An engine posts the descriptors of a read on the thread that makes its steps. Its streams stand still
// meanwhile. In a used cache each block and layer has a descriptor of its own, so that the time grows with
// the number of blocks.

// Posting returns the seconds without a step per token that r reads.
func (r *Replica) Posting() float64 { return r.posting }

// LearnPosting takes in the seconds without a step per token whose KV cache r reads from another replica, by
// the engine's newest counts.
func (r *Replica) LearnPosting(perToken float64) {
	if r.posting > 0 {
		perToken = r.posting + postingGain*(perToken-r.posting)
	}
	r.posting = perToken
}

const postingGain = 0.3 // weight of the newest counts

// Posts records that r begins to read the blocks of so many tokens.
func (r *Replica) Posts(tokens int) { r.posted += float64(tokens) * r.posting }

// CutsPrompts reports whether the engine cuts prompts so finely itself that pieces bring nothing.
func (r *Replica) CutsPrompts(now time.Time) bool { return r.cuts.fine(now) }

// Slowed reports whether the latest finding from running streams is that r has become slow, and its time.
func (r *Replica) Slowed() (at time.Time, slowed bool) { return r.pace.until, r.pace.slowed }

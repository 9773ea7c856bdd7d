package outlier

// Leg is what a replica does for a request. A replica may fail at one and be well at another.
type Leg uint8

// Prefill computes a prompt that another replica decodes. Decode generates from blocks that were transferred.
// Whole does both alone.
const (
	Prefill Leg = iota
	Decode
	Whole
	legs
)

func (l Leg) String() string { return [...]string{"prefill", "decode", "whole", "?"}[min(l, legs)] }

// Kind is a kind of failure.
type Kind uint8

// The kinds of failures, by the engine's behaviour.
const (
	Refused     Kind = iota // took no connection
	ServerError             // answered with a status of 500 or more, or an error event before any content
	Broken                  // broke off
	Silent                  // did not answer in time
	Unusable                // prefilled, and gave no transfer parameters that can be handed over
	LoadFail                // the blocks of the other replica could not be loaded
	Unmoved                 // answered without loading any of the planned blocks
	Stuck                   // neither loaded the blocks of the other replica nor said that it cannot
	Wrong                   // answered a trial with another text than it should
	Refusing                // answered with a status that no request can cause, such as 401 or a redirect
	kinds
)

func (k Kind) String() string {
	return [...]string{
		"connection refused", "server error", "broken", "no answer in time", "nothing that can be handed over",
		"blocks not loaded", "no blocks moved", "blocks not there in time", "wrong text",
		"unexpected status", "?",
	}[min(k, kinds)]
}

// weight is what a failure counts, in failures of the usual kind. A failure for which a client waits long
// counts more. So does a failure that is no accident, such as an engine without a connector. A failure that
// may have another cause counts less.
func (k Kind) weight() float64 {
	switch k {
	case Silent, Unusable, Stuck:
		return 1.5
	case Unmoved:
		return 0.7
	case Wrong:
		return 100
	}
	return 1
}

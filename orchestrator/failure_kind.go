package orchestrator

import (
	"net/http"

	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// failureKind is the kind of a failure. The kind's row in failureTable decides everything that does not
// depend on where the failure happened: the status, the owner, whether another attempt may help, and the
// wording.
type failureKind uint8

const (
	// Admission.
	kindUnknownPath failureKind = iota
	kindUnknownMethod
	kindUnauthorised
	kindModelDenied
	kindOverLimit
	kindTooMany
	kindNoDescriptor
	kindBodyUnread
	kindBodyTooLarge
	kindBadRequest
	kindBadID
	kindDraining

	// Planning and the queue.
	kindUnknownModel
	kindUnknownResponse
	kindTooLarge
	kindNoReplica
	kindNoPlan
	kindQueueFull
	kindQueueTimeout
	kindTooLate
	kindUnsplit // no engine may serve the request whole

	// The client, and limits of the router.
	kindClientGone
	kindStopped
	kindRestLate // the rest of an answer did not begin in time
	kindAnswerTimeout
	kindAnswerTooLarge
	kindUnsendable
	kindEdit
	kindMerge
	kindNothingLeft // nothing is left of the answer for another engine
	kindRestUnasked // no request for the rest of the answer could be made
	kindDiverged    // the next engine generates other tokens than the engine before
	kindPanic

	// One engine.
	kindStatus     // an engine's own error answer
	kindErrorEvent // an engine's own error event within a stream
	kindMisplaced  // a status that no request can cause
	kindUnreachable
	kindBroken
	kindStale     // a kept connection that was too old
	kindFormerEra // the answer may rest on wrong blocks of the engine's cache
	kindSilent
	kindSource // the engine from which a leg pulls blocks stood still
	kindTimeout
	kindBadAnswer
	kindLeft

	// The handoff between two engines.
	kindBadParams
	kindForeign
	kindExpired
	kindTaken
	kindStuck
	kindLate
	kindNoDecode
	kindNoIDReuse
	kindNoIDs

	failureKinds // the number of kinds
)

// phase is the step in which a failure happened. Records, metrics, spans and the log show its name.
type phase string

const (
	phaseAdmit    phase = "admit" // the request was read and checked
	phaseTokenize phase = "tokenize"
	phaseQueue    phase = "queue"
	phasePlan     phase = "plan"
	phasePrefill  phase = "prefill" // named as the role of the replica
	phaseHandoff  phase = "handoff"
	phaseDecode   phase = "decode" // up to the first content; named as the role of the replica
	phaseStream   phase = "stream"
	phaseClient   phase = "client" // the answer was written
	phaseServe    phase = "serve"  // the router itself
)

// owner is the side that caused a failure.
type owner uint8

const (
	ownerRouter owner = iota // counted in tandem_refused_total
	ownerClient
	ownerEngine
	ownerByStatus // the engine's own answer: the status decides between client and engine
)

// inPhases is a set of phases.
type inPhases uint8

const (
	never inPhases = iota
	always
	inPrefill
	inDecode
)

func (p inPhases) holds(in phase) bool {
	return p == always || p == inPrefill && in == phasePrefill || p == inDecode && in == phaseDecode
}

// failureRow has the common properties of all failures of one kind.
type failureRow struct {
	name     string // in metrics, records, spans and the log; after "status_" follows the status of the engine
	status   int    // for the client; 0: the status of the engine's own answer
	owner    owner
	retry    inPhases // another replica may do better; not used for ownerByStatus
	harmless inPhases // no engine did work that another attempt would multiply
	alone    bool     // the next attempt must not split the request
	unused   inPhases // transfer params did not reach a decode engine: its lease can be given back
	unlucky  bool     // no replica is at fault: the same replicas may be asked again
	blame    blamed   // how the failure is blamed on an engine
	words    string   // the message for the client, with {phase} for the phase; "": the caller writes it
}

// blamed is a kind of failure of an engine, in the terms of ejection. The zero value blames no engine.
type blamed struct {
	as    outlier.Kind
	holds bool
}

func blame(as outlier.Kind) blamed { return blamed{as, true} }

// failureTable has the row of each kind.
//
// Long: one row a kind.
var failureTable = [failureKinds]failureRow{
	kindUnknownPath: {name: "unknown_path", status: http.StatusNotFound, words: "Not Found"},
	kindUnknownMethod: {
		name: "unknown_method", status: http.StatusMethodNotAllowed, words: "Method Not Allowed",
	},
	kindUnauthorised: {
		name: "unauthorised", status: http.StatusUnauthorized,
		words: "Present a valid API key as a bearer token in the Authorization header.",
	},
	kindModelDenied: {name: "model_denied", status: http.StatusNotFound, owner: ownerClient},
	kindOverLimit:   {name: "over_limit", status: http.StatusTooManyRequests},
	kindTooMany: {
		name: "too_many", status: http.StatusTooManyRequests,
		words: "Too many requests are in flight; try again shortly.",
	},
	kindNoDescriptor: {
		name: "no_descriptor", status: http.StatusServiceUnavailable,
		words: "The router has no file descriptor for another request; try again shortly. Its operator may raise " +
			"the limit of open files (ulimit -n).",
	},
	kindBodyUnread: {
		name: "body_unread", status: http.StatusBadRequest, owner: ownerClient,
		words: "The request body did not arrive completely.",
	},
	kindBodyTooLarge: {name: "body_too_large", status: http.StatusRequestEntityTooLarge},
	kindBadRequest: {
		name: "bad_request", status: http.StatusBadRequest, owner: ownerClient,
		words: "The request body cannot be read.",
	},
	kindBadID: {
		name: "bad_id", status: http.StatusBadRequest, owner: ownerClient,
		words: "A response id has letters, digits, '_' and '-'.",
	},
	kindDraining: {
		name: "draining", status: http.StatusServiceUnavailable,
		words: "The router is shutting down; send the request to another one.",
	},

	kindUnknownModel: {
		name: "unknown_model", status: http.StatusNotFound, owner: ownerClient, words: "The model does not exist.",
	},
	kindUnknownResponse: {
		name: "unknown_response", status: http.StatusNotFound, owner: ownerClient,
		words: "No engine keeps this response.",
	},
	kindTooLarge: {name: "too_large", status: http.StatusBadRequest, owner: ownerClient},
	kindNoReplica: {
		name: "no_replica", status: http.StatusServiceUnavailable, words: "No engine is usable at the moment.",
	},
	kindNoPlan: {
		name: "no_plan", status: http.StatusInternalServerError, words: "The router could not make a plan.",
	},
	kindQueueFull: {
		name: "queue_full", status: http.StatusTooManyRequests,
		words: "No decode replica has room, and the queue is full.",
	},
	kindQueueTimeout: {
		name: "queue_timeout", status: http.StatusTooManyRequests,
		words: "No decode replica had room within the time a request may wait.",
	},
	kindTooLate: {
		name: "too_late", status: http.StatusTooManyRequests,
		words: "The first token would come later than this router lets requests wait.",
	},
	kindUnsplit: {
		name: "unsplit", status: http.StatusNotImplemented,
		words: "The engines of this router serve only requests that can be split.",
	},

	kindClientGone: {name: goneName, status: clientGone, owner: ownerClient},
	kindStopped: {
		name: "stopped", status: http.StatusServiceUnavailable,
		words: "The router is shutting down; send the request again.",
	},
	kindRestLate: {
		name: "timeout", status: http.StatusGatewayTimeout, blame: blame(outlier.Silent),
		words: "The answer did not come in time.",
	},
	kindAnswerTimeout: {
		name: "answer_timeout", status: http.StatusGatewayTimeout,
		words: "The answer was not complete in the time that this router lets answers take.",
	},
	kindAnswerTooLarge: {
		name: "answer_too_large", status: http.StatusBadGateway,
		words: "The answer is larger than this router takes.",
	},
	kindUnsendable: {
		name: "unsendable", status: http.StatusInternalServerError,
		words: "The router could not write this request for an engine.",
	},
	kindEdit: {
		name: "edit", status: http.StatusInternalServerError, words: "The prefill request could not be written.",
	},
	kindMerge: {
		name: "merge", status: http.StatusBadGateway,
		words: "The answers to the prompts could not be put together.",
	},
	kindNothingLeft: {
		name: "continue", status: http.StatusBadGateway,
		words: "Nothing is left of the answer but how it ended.",
	},
	kindRestUnasked: {
		name: "continue", status: http.StatusInternalServerError,
		words: "The rest of the answer could not be asked for.",
	},
	kindDiverged: {
		name: "diverged", status: http.StatusBadGateway,
		words: "Another replica went on otherwise with the answer.",
	},
	kindPanic: {
		name: "panic", status: http.StatusInternalServerError, words: "The router failed on this request.",
	},

	kindStatus:     {name: "status_", owner: ownerByStatus},
	kindErrorEvent: {name: "error_event", owner: ownerByStatus},
	kindMisplaced: {
		name: "status_", status: http.StatusBadGateway, owner: ownerEngine, retry: always, harmless: always,
		blame: blame(outlier.Refusing), words: "The {phase} replica refuses this router.",
	},
	kindUnreachable: {
		name: "unreachable", status: http.StatusBadGateway, owner: ownerEngine, retry: always, harmless: always,
		blame: blame(outlier.Refused), words: "The {phase} replica cannot be reached.",
	},
	kindBroken: {
		name: "broken", status: http.StatusBadGateway, owner: ownerEngine, retry: always,
		blame: blame(outlier.Broken), words: "The {phase} replica broke off before it answered.",
	},
	kindStale: {
		name: "stale", status: http.StatusBadGateway, owner: ownerEngine, retry: always, unlucky: true,
		words: "The {phase} replica broke off before it answered.",
	},
	kindFormerEra: {
		name: "former_era", status: http.StatusBadGateway, retry: always, unlucky: true,
		words: "The answer may rest on wrong blocks of the engine's cache, and could not be made again.",
	},
	kindSilent: {
		name: "silent", status: http.StatusGatewayTimeout, owner: ownerEngine, retry: always, harmless: inPrefill,
		blame: blame(outlier.Silent), words: "The {phase} replica stood still.",
	},
	kindSource: {
		name: "source_silent", status: http.StatusGatewayTimeout, owner: ownerEngine, retry: always,
		harmless: always, words: "The {phase} replica waited for blocks of an engine that stood still.",
	},
	kindTimeout: {
		name: "timeout", status: http.StatusGatewayTimeout, owner: ownerEngine, retry: inPrefill,
		blame: blame(outlier.Silent), words: "The {phase} replica did not answer in time.",
	},
	kindBadAnswer: {
		name: "bad_answer", status: http.StatusBadGateway, owner: ownerEngine, retry: always,
		blame: blame(outlier.Unusable), words: "The {phase} replica broke off before it answered.",
	},
	kindLeft: {
		name: "left", status: http.StatusServiceUnavailable, retry: always, harmless: always, unused: inDecode,
		words: "The {phase} replica has left the pool.",
	},

	kindBadParams: handoffRow("bad_params", blame(outlier.Unusable)),
	kindForeign:   handoffRow("foreign", blame(outlier.Unusable)),
	kindTaken:     handoffRow("taken", blamed{}),
	kindExpired: {
		name: "expired", status: http.StatusBadGateway, owner: ownerEngine, retry: always, harmless: always,
		unused: always,
	},
	kindStuck: {
		name: "stuck", status: http.StatusGatewayTimeout, owner: ownerEngine, retry: always,
		blame: blame(outlier.Stuck), words: "The prompt did not reach the decode replica in time.",
	},
	kindLate: {
		name: "late", status: http.StatusGatewayTimeout, owner: ownerEngine, retry: always, alone: true,
		blame: blame(outlier.Silent),
		words: "The prompt may have been handed over too late; nothing of the answer was used.",
	},
	kindNoDecode: {
		name: "no_decode", status: http.StatusServiceUnavailable, retry: always,
		words: "No decode replica can take the request any more.",
	},
	kindNoIDReuse: {
		name: "no_id_reuse", status: http.StatusServiceUnavailable, retry: always, unused: always,
		words: "The remaining decode replicas cannot take token ids.",
	},
	kindNoIDs: {
		name: "no_ids", status: http.StatusServiceUnavailable, retry: always, harmless: always, alone: true,
		words: "No engine of the decode replica's release makes token ids of the request.",
	},
}

// handoffRow returns the row of transfer params that must not reach a decode engine.
func handoffRow(name string, as blamed) failureRow {
	return failureRow{
		name: name, status: http.StatusBadGateway, owner: ownerEngine, retry: always, unused: always, blame: as,
	}
}

// clientGone is the status that records show for a client that left. No client receives it.
const clientGone = 499

// goneName is the name of kindClientGone in records.
const goneName = observe.Gone

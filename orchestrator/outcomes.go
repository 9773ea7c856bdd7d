package orchestrator

// This file has the words in records, metrics and the log for what happened to a stream that broke off, and
// for why nothing more was tried.

// Outcomes of streams that broke off.
const (
	wentOn      = "continued"
	wasComplete = "complete"     // but for the end marker
	notPossible = "not_possible" // the answer cannot be split here
	tooOften    = "too_often"
	noBudget    = "no_budget"
	diverged    = "diverged"
	nobody      = "failed"
	clientLeft  = "client_gone"
)

// These are the reasons why no engine continued a stream that broke off, in its record and in the log.
// Further reasons are tooOften, noBudget, diverged and nobody, which are outcomes of tries, and the reasons
// of [openai.Delivered.Resumable].
const (
	continueOff    = "off"            // retry.continue
	continueGreedy = "sampled"        // and retry.continue is greedy
	continueAPI    = "api"            // the events of the API are not known well enough
	continueMember = "request"        // a member of the request, which may be unknown
	continueWhole  = "whole"          // the request was passed on unchanged
	engineRefused  = "refused"        // by an error event of its engine, with a status below 500
	nothingLeft    = "nothing_left"   // nothing is missing of the answer but its end
	eventTooLong   = "event_too_long" // the one that ended it
)

// These are the reasons why no attempt followed a failure that another replica might avoid, in the record and
// in the log. Another reason is noBudget.
const (
	retryAttempts = "attempts"     // retry.attempts
	retrySame     = "same_failure" // two replicas failed in the same phase: the request is the likely cause
	retryNobody   = "no_replica"   // no replica is left that has not failed the request, or the next plan failed
	retryUnsafe   = "not_safe"     // a passed request, which may have had its effect
)

package orchestrator

// This file has the words with which records, metrics and the log say how a stream that broke off went on,
// and why nothing more was tried.

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

// Reasons why no engine continued a stream that broke off, in its record and in the log. Further reasons are
// tooOften, noBudget, diverged and nobody, which are outcomes of tries, and the reasons of
// [openai.Delivered.Resumable].
const (
	continueOff    = "off"            // retry.continue
	continueGreedy = "sampled"        // and retry.continue is greedy
	continueAPI    = "api"            // its events are not known well enough
	continueMember = "request"        // something that it asks for, or a field that is not known
	continueWhole  = "whole"          // it was passed on as it came
	engineRefused  = "refused"        // by an event of its engine, with a status below 500
	nothingLeft    = "nothing_left"   // of the answer but how it ended
	eventTooLong   = "event_too_long" // the one that ended it
)

// Reasons why no attempt followed a failure that another replica might avoid, in the record and in the log.
// There is also noBudget.
const (
	retryAttempts = "attempts"     // retry.attempts
	retrySame     = "same_failure" // two replicas failed in the same phase: the request is the likely cause
	retryNobody   = "no_replica"   // no replica is left that has not failed the request, or the next plan failed
	retryUnsafe   = "not_safe"     // a request that was passed on as it came, and may have had its effect
)

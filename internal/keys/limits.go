package keys

import (
	"sync"
	"time"
)

// Limits bound what a key may use. 0 is no bound. A router counts for itself: with several routers a key may
// use its limits at each one.
type Limits struct {
	Requests int // that begin in a minute
	Tokens   int // of prompts and answers, in a minute
	AtOnce   int // requests that run
	KV       int // tokens of the requests that run, as KV cache holds them
}

// Limit names one of the limits.
type Limit string

// The limits, by the words of messages.
const (
	NoLimit    Limit = ""
	OfRequests Limit = "requests per minute"
	OfTokens   Limit = "tokens per minute"
	OfRunning  Limit = "requests at once"
	OfKV       Limit = "KV tokens at once"
)

// Account counts what one key uses. It outlives reloads. Safe for concurrent use.
type Account struct {
	mu       sync.Mutex // guards all
	requests window
	tokens   window
	running  int
	kv       int64
	answer   float64 // mean length of the latest answers in tokens; 0 unknown
}

// Ask is what a request is expected to use.
type Ask struct {
	Prompt    int // tokens
	MaxTokens int // of one answer; 0 unbounded
	Answers   int // how many; 0 for a request that generates nothing
	Expected  int // tokens of one answer, while the account knows no answers
}

// Standing says how much of the limits is left. A limit of 0 is not set.
type Standing struct {
	Limits                     Limits
	Requests, Tokens           int           // left
	RequestsReset, TokensReset time.Duration // until all is left
}

// Hold is a request that has been let in. It belongs to the account. A nil Hold takes every call and does
// nothing. Safe for concurrent use.
type Hold struct {
	of       *Account
	slot     int64 // in which its tokens were counted
	reserved int64 // tokens
	kv       int64
	used     int64
	ended    bool
}

// Reserve lets a request in, or names the limit that it would exceed, and after which time it may be let in.
// A request that asks for more than a whole limit is let in when nothing else counts.
func (a *Account) Reserve(of Limits, ask Ask, now time.Time) (h *Hold, over Limit, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.turn(now)
	a.tokens.turn(now)
	most, kv := a.expect(ask), int64(0)
	if of.KV > 0 {
		kv = min(most, int64(of.KV))
	}
	tokens := most
	if of.Tokens > 0 {
		tokens = min(most, int64(of.Tokens))
	}
	switch {
	case of.Requests > 0 && a.requests.sum >= int64(of.Requests):
		return nil, OfRequests, a.requests.until(int64(of.Requests)-1, now)
	case of.Tokens > 0 && a.tokens.sum+tokens > int64(of.Tokens):
		return nil, OfTokens, a.tokens.until(int64(of.Tokens)-tokens, now)
	case of.AtOnce > 0 && a.running >= of.AtOnce:
		return nil, OfRunning, time.Second
	case of.KV > 0 && a.kv+kv > int64(of.KV):
		return nil, OfKV, time.Second
	}
	a.running++
	a.kv += kv
	a.requests.add(1)
	return &Hold{of: a, slot: a.tokens.add(tokens), reserved: tokens, kv: kv}, NoLimit, 0
}

// expect is how many tokens a request is expected to use.
func (a *Account) expect(ask Ask) int64 {
	answer := int(a.answer)
	if a.answer == 0 {
		answer = ask.Expected
	}
	if ask.MaxTokens > 0 {
		answer = min(answer, ask.MaxTokens)
	}
	return int64(ask.Prompt) + int64(answer)*int64(ask.Answers)
}

// Standing says how much of the limits is left.
func (a *Account) Standing(of Limits, now time.Time) Standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.turn(now)
	a.tokens.turn(now)
	return Standing{
		Limits: of, Requests: max(0, of.Requests-int(a.requests.sum)), Tokens: max(0, of.Tokens-int(a.tokens.sum)),
		RequestsReset: a.requests.until(0, now), TokensReset: a.tokens.until(0, now),
	}
}

// Use charges the tokens of a prompt and of its answers that an engine has computed. answers is the number of
// answers. Until the end of the hold the charge replaces what was reserved. A later charge comes on top.
func (h *Hold) Use(prompt, output, answers int, now time.Time) {
	if h == nil {
		return
	}
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if output > 0 && answers > 0 {
		h.of.learn(float64(output) / float64(answers))
	}
	if h.ended {
		h.of.tokens.turn(now)
		h.of.tokens.add(int64(prompt + output))
		return
	}
	h.used += int64(prompt + output)
}

// learn takes the length of an answer into the mean.
func (a *Account) learn(answer float64) {
	const weight = 0.1 // of a new answer
	if a.answer == 0 {
		a.answer = answer
		return
	}
	a.answer += weight * (answer - a.answer)
}

// End ends the request: what was reserved and not used is given back. A second call does nothing.
func (h *Hold) End(now time.Time) {
	if h == nil {
		return
	}
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	h.of.running--
	h.of.kv -= h.kv
	h.of.tokens.turn(now)
	h.of.tokens.correct(h.slot, h.used-h.reserved)
}

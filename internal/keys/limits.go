package keys

import (
	"container/list"
	"sync"
	"time"
)

// Limits bound what a key may use. 0 is no bound. Limits hold for all routers that hear of each other's use.
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
	all     *Accounts // immutable, as is name
	name    string
	place   *list.Element // in the live ones of all; guarded by all, as is version
	version uint64

	mu        sync.Mutex // guards the following
	requests  window
	tokens    window
	running   int
	kv        int64
	answer    mean                 // length of an answer in tokens
	ratio     mean                 // counted tokens of a prompt over estimated ones
	elsewhere map[string]elsewhere // by router
}

// Ask is what a request is expected to use.
type Ask struct {
	Prompt    int  // tokens
	Rough     bool // Prompt is estimated from the length of the body
	MaxTokens int  // of one answer; 0 unbounded
	Answers   int  // how many; 0 for a request that generates nothing
	Expected  int  // tokens of one answer, while the account knows no answers
}

// Standing says how much of the limits is left. A limit of 0 is not set.
type Standing struct {
	Limits                     Limits
	Requests, Tokens           int           // left
	RequestsReset, TokensReset time.Duration // until all is left

	// The limit that the request would exceed, and after which time it may be let in; else [NoLimit] and 0.
	Over Limit
	Wait time.Duration
}

// Hold is a request that has been let in. It belongs to the account. A nil Hold takes every call and does
// nothing. Safe for concurrent use.
type Hold struct {
	of       *Account
	limits   Limits
	rough    int   // tokens of the prompt as [Ask] estimated them; 0 if the prompt was or has been counted
	prompt   int64 // tokens of the prompt, as reserved
	answers  int64 // tokens of the answers, as reserved
	slot     int64 // in which the request was counted
	reserved int64 // prompt and answers, at most the limit of tokens
	kv       int64 // prompt and answers, at most the limit of KV; 0 without this limit
	used     int64
	ended    bool
}

// Reserve lets a request in, or returns nil and names the limit that the request would exceed. A request that
// asks for more than a whole limit is let in when nothing else counts.
func (a *Account) Reserve(of Limits, ask Ask, now time.Time) (*Hold, Standing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.turn(now)
	a.tokens.turn(now)
	h := a.expect(of, ask)
	there := a.there(now)
	over, wait := a.judge(of, h, &there, now)
	if over != NoLimit {
		h = nil
	} else {
		a.running++
		h.slot = a.requests.add(1)
		a.take(h, 1)
		a.touch()
	}
	s := a.standing(of, &there, now)
	s.Over, s.Wait = over, wait
	return h, s
}

// Count replaces the estimate of the prompt by its counted tokens. If the request exceeds a limit now, Count
// gives back what was reserved, and names the limit and the wait as [Account.Reserve] does.
func (h *Hold) Count(prompt int, now time.Time) (over Limit, wait time.Duration) {
	if h == nil || h.rough == 0 {
		return NoLimit, 0
	}
	a := h.of
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.turn(now)
	a.tokens.turn(now)
	a.ratio.learn(float64(prompt) / float64(h.rough))
	a.take(h, -1)
	h.rough, h.prompt = 0, int64(prompt)
	h.bound()
	there := a.there(now)
	over, wait = a.judge(Limits{Tokens: h.limits.Tokens, KV: h.limits.KV}, h, &there, now)
	if over != NoLimit {
		h.reserved, h.kv = 0, 0
		a.requests.correct(h.slot, -1)
	}
	a.take(h, 1)
	a.touch()
	return over, wait
}

// take counts what the hold reserves, or takes it back: times is 1 or -1. A slot that is over counts no more.
func (a *Account) take(h *Hold, times int64) {
	a.kv += times * h.kv
	if a.tokens.at-h.slot < slots {
		a.tokens.correct(h.slot, times*h.reserved)
	}
}

// touch lets other routers hear of a change.
func (a *Account) touch() { a.all.touch(a) }

// judge returns the limit that h would exceed, and after which time h may be let in. there is what other
// routers use now.
func (a *Account) judge(of Limits, h *Hold, there *Use, now time.Time) (over Limit, wait time.Duration) {
	requests, tokens := int64(of.Requests)-1, int64(of.Tokens)-h.reserved
	switch {
	case of.Requests > 0 && a.requests.sum+there.Requests.Sum > requests:
		return OfRequests, a.requests.until(requests, now, func(wait time.Duration) int64 {
			return a.there(now.Add(wait)).Requests.Sum
		})
	case of.Tokens > 0 && a.tokens.sum+there.Tokens.Sum > tokens:
		return OfTokens, a.tokens.until(tokens, now, func(wait time.Duration) int64 {
			return a.there(now.Add(wait)).Tokens.Sum
		})
	case of.AtOnce > 0 && a.running+there.Running >= of.AtOnce:
		return OfRunning, time.Second
	case of.KV > 0 && a.kv+there.KV+h.kv > int64(of.KV):
		return OfKV, time.Second
	}
	return NoLimit, 0
}

// expect returns a hold with what a request is expected to use.
func (a *Account) expect(of Limits, ask Ask) *Hold {
	answer := int(a.answer)
	if a.answer == 0 {
		answer = ask.Expected
	}
	if ask.MaxTokens > 0 {
		answer = min(answer, ask.MaxTokens)
	}
	h := &Hold{of: a, limits: of, prompt: int64(ask.Prompt), answers: int64(answer) * int64(ask.Answers)}
	if ask.Rough {
		h.rough = ask.Prompt
		if a.ratio > 0 {
			h.prompt = int64(float64(ask.Prompt) * float64(a.ratio))
		}
	}
	h.bound()
	return h
}

// bound sets what the hold reserves of the limits.
func (h *Hold) bound() {
	h.reserved, h.kv = h.prompt+h.answers, 0
	if h.limits.KV > 0 {
		h.kv = min(h.reserved, int64(h.limits.KV))
	}
	if h.limits.Tokens > 0 {
		h.reserved = min(h.reserved, int64(h.limits.Tokens))
	}
}

// standing says how much of the limits is left, while other routers use there. The caller holds the lock.
func (a *Account) standing(of Limits, there *Use, now time.Time) Standing {
	return Standing{
		Limits:        of,
		Requests:      max(0, of.Requests-int(a.requests.sum+there.Requests.Sum)),
		Tokens:        max(0, of.Tokens-int(a.tokens.sum+there.Tokens.Sum)),
		RequestsReset: max(a.requests.all(now), there.Requests.All),
		TokensReset:   max(a.tokens.all(now), there.Tokens.All),
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
		h.of.answer.learn(float64(output) / float64(answers))
	}
	if h.ended {
		h.of.tokens.turn(now)
		h.of.tokens.add(int64(prompt + output))
		h.of.touch()
		return
	}
	h.used += int64(prompt + output)
}

// mean is a mean of the latest values; 0 without a value.
type mean float64

func (m *mean) learn(value float64) {
	const weight = 0.1 // of a new value
	if *m == 0 {
		*m = mean(value)
		return
	}
	*m += weight * (mean(value) - *m)
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
	h.of.touch()
}

package observe

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// InFlight is a running request, as /debug/in_flight shows it. It has no part of the prompt.
type InFlight struct {
	ID       string  `json:"id"`
	ClientID string  `json:"client_id,omitzero"` // the X-Request-Id that the client gave
	Client   string  `json:"client"`             // address and port
	Key      string  `json:"key,omitzero"`       // name of the client's key, or a part of its hash
	Class    string  `json:"class,omitzero"`     // known once a plan is sought
	Path     string  `json:"path"`
	Age      float64 `json:"age_ms"`
	Model    string  `json:"model"`            // "" until the request has been read
	Prompts  int     `json:"prompts"`          // more than one in a batch
	Prompt   int     `json:"prompt_tokens"`    // of all prompts so far, estimated where no ids are known
	Prefill  string  `json:"prefill,omitzero"` // of the newest prompt that got a plan
	Decode   string  `json:"decode,omitzero"`  // "" while it waits for room
}

// Running holds all running requests. The zero value has none. Safe for concurrent use.
type Running struct {
	mu  sync.Mutex // guards all
	all map[*UnderWay]struct{}
}

// UnderWay is one request in a [Running]. Safe for concurrent use. On a nil UnderWay all methods do nothing.
type UnderWay struct {
	began time.Time

	mu    sync.Mutex // guards shown
	shown InFlight   // without its age
}

// Enter adds a request that began at began.
func (r *Running) Enter(first *InFlight, began time.Time) *UnderWay {
	u := &UnderWay{began: began, shown: *first}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*UnderWay]struct{}{}
	}
	r.all[u] = struct{}{}
	return u
}

// Leave removes a request that has ended.
func (r *Running) Leave(u *UnderWay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, u)
}

// List returns the requests that run, the oldest first.
func (r *Running) List(now time.Time) []InFlight {
	r.mu.Lock()
	all := make([]*UnderWay, 0, len(r.all))
	for u := range r.all {
		all = append(all, u)
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *UnderWay) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.shown.ID, b.shown.ID))
	})
	rows := make([]InFlight, len(all))
	for i, u := range all {
		u.mu.Lock()
		rows[i] = u.shown
		u.mu.Unlock()
		rows[i].Age = now.Sub(u.began).Seconds() * 1e3
	}
	return rows
}

// Asks records a prompt with its tokens, for which a plan is sought.
func (u *UnderWay) Asks(model, class string, tokens int) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shown.Model, u.shown.Class = model, class
	u.shown.Prompts++
	u.shown.Prompt += tokens
}

// Runs records the replicas of the newest prompt.
func (u *UnderWay) Runs(prefill, decode string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shown.Prefill, u.shown.Decode = prefill, decode
}

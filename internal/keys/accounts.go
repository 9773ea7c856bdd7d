package keys

import (
	"container/list"
	"sync"
	"time"
)

// Accounts are the accounts of keys with limits, by the names of the keys. An account outlives its key until
// nothing in it counts: a key may be missing from one version of its file alone, while an editor writes it.
// The zero value is empty. Safe for concurrent use.
type Accounts struct {
	mu      sync.Mutex // guards the following; taken after that of an account
	by      map[string]*Account
	live    list.List // the accounts in which something may count, the latest changed last
	version uint64    // of the latest change
}

// Use is what a key uses at one router, as the router tells others.
type Use struct {
	Key      string `json:"key"`
	Requests Amount `json:"requests,omitzero"`
	Tokens   Amount `json:"tokens,omitzero"`
	Running  int    `json:"running,omitzero"` // requests
	KV       int64  `json:"kv,omitzero"`      // tokens of the requests that run
}

// MostUses bounds the keys that a router tells others of at once.
const MostUses = 10_000

// Plausible reports whether a router can have sent u.
func (u *Use) Plausible() bool {
	return u.Key != "" && len(u.Key) <= 64 && u.Requests.plausible() && u.Tokens.plausible() &&
		u.Running >= 0 && u.Running < mostAmount && u.KV >= 0 && u.KV < mostAmount
}

// elsewhere is what a key uses at another router.
type elsewhere struct {
	Use
	heard time.Time
	until time.Time // without news, running requests count until then
}

// there is what the key uses at other routers. The caller holds the lock.
func (a *Account) there(now time.Time) (sum Use) {
	for _, e := range a.elsewhere {
		age := max(0, now.Sub(e.heard))
		requests, tokens := e.Requests.at(age), e.Tokens.at(age)
		sum.Requests.Sum += requests.Sum
		sum.Requests.All = max(sum.Requests.All, requests.All)
		sum.Tokens.Sum += tokens.Sum
		sum.Tokens.All = max(sum.Tokens.All, tokens.All)
		if now.Before(e.until) {
			sum.Running += e.Running
			sum.KV += e.KV
		}
	}
	return sum
}

// of returns the account of a name. It makes the account if there is none.
func (as *Accounts) of(name string) *Account {
	as.mu.Lock()
	defer as.mu.Unlock()
	a := as.by[name]
	if a == nil {
		a = &Account{all: as, name: name}
		if as.by == nil {
			as.by = map[string]*Account{}
		}
		as.by[name] = a
	}
	return a
}

// touch notes a change of a, of which other routers are told.
func (as *Accounts) touch(a *Account) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.version++
	if a.version = as.version; a.place == nil {
		a.place = as.live.PushBack(a)
		return
	}
	as.live.MoveToBack(a.place)
}

// dropLocked takes a from the accounts in which something counts.
func (as *Accounts) dropLocked(a *Account) {
	if a.place != nil {
		as.live.Remove(a.place)
		a.place = nil
	}
}

// Keep forgets the accounts in which nothing counts, unless kept reports true for the name of the account.
func (as *Accounts) Keep(kept func(name string) bool, now time.Time) {
	for _, a := range as.snapshot() {
		if kept(a.name) {
			continue
		}
		if _, counts := a.use(now); counts {
			continue
		}
		as.mu.Lock()
		delete(as.by, a.name)
		as.dropLocked(a)
		as.mu.Unlock()
	}
}

// snapshot returns all accounts.
func (as *Accounts) snapshot() []*Account {
	as.mu.Lock()
	defer as.mu.Unlock()
	all := make([]*Account, 0, len(as.by))
	for _, a := range as.by {
		all = append(all, a)
	}
	return all
}

// Version is the number of the next change, not 0.
func (as *Accounts) Version() uint64 {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.version + 1
}

// Uses returns what keys use at this router, and the number of the next change. If since is 0, it returns
// every use that counts, else only the uses that have changed from the change of this number on.
func (as *Accounts) Uses(since uint64, now time.Time) (uses []Use, version uint64) {
	changed, version := as.changed(since)
	for _, a := range changed {
		use, counts := a.use(now)
		if since == 0 && !counts {
			as.mu.Lock()
			if a.version < version {
				as.dropLocked(a)
			}
			as.mu.Unlock()
			continue
		}
		uses = append(uses, use)
	}
	return uses, version
}

// changed returns the accounts that have changed from a change on, and the number of the next change.
func (as *Accounts) changed(since uint64) (changed []*Account, version uint64) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for e := as.live.Back(); e != nil && len(changed) < MostUses; e = e.Prev() {
		a, ok := e.Value.(*Account)
		if !ok || a.version < since {
			break
		}
		changed = append(changed, a)
	}
	return changed, as.version + 1
}

// use is what the key uses, and whether anything counts.
func (a *Account) use(now time.Time) (u Use, counts bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.turn(now)
	a.tokens.turn(now)
	u = Use{a.name, a.requests.amount(now), a.tokens.amount(now), a.running, a.kv}
	return u, a.running > 0 || u.Requests.Sum != 0 || u.Tokens.Sum != 0
}

// Hear counts what keys use at another router: everything, or what has changed. What runs counts for the
// patience without news. Requests and tokens count until their minute is over, also if the router ends.
func (as *Accounts) Hear(router string, uses []Use, all bool, now time.Time, patience time.Duration) {
	for i := range uses {
		as.mu.Lock()
		a := as.by[uses[i].Key]
		as.mu.Unlock()
		if a != nil {
			a.hear(router, elsewhere{uses[i], now, now.Add(patience)})
		}
	}
	if !all {
		return
	}
	for _, a := range as.snapshot() {
		a.forget(router, now)
	}
}

// hear counts what the key uses at a router.
func (a *Account) hear(router string, e elsewhere) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.elsewhere == nil {
		a.elsewhere = map[string]elsewhere{}
	}
	a.elsewhere[router] = e
	for name, old := range a.elsewhere { // of routers that have ended
		if e.heard.After(old.until) && old.Requests.All < e.heard.Sub(old.heard) &&
			old.Tokens.All < e.heard.Sub(old.heard) {
			delete(a.elsewhere, name)
		}
	}
}

// forget drops what the key used at a router, unless it was heard now.
func (a *Account) forget(router string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.elsewhere[router].heard.Equal(now) {
		delete(a.elsewhere, router)
	}
}

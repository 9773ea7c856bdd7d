package peers

import (
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
	"github.com/tandem-router/tandem/internal/keys"
)

// asks returns a function that asks a router to admit a request of a key.
func (r *rig) asks(name string, of keys.Limits) func() (*keys.Hold, keys.Standing) {
	var hash [32]byte
	copy(hash[:], name)
	list := []keys.Key{{Name: name, Hash: hash, Limits: of}}
	keys.NewTable(list, r.peers.Keys())
	account := list[0].Account
	return func() (*keys.Hold, keys.Standing) { return account.Reserve(of, keys.Ask{Prompt: 10}, time.Now()) }
}

// flood asks three routers at once, each every 2 ms for a second and a half. It returns how many requests
// were let in, and the most that came in 100 ms.
func flood(routers []*rig, name string, of keys.Limits) (let, most int) {
	var mu sync.Mutex
	var came []time.Time
	var all sync.WaitGroup
	for _, r := range routers {
		ask := r.asks(name, of)
		all.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for range 750 {
				<-tick.C
				_, s := ask()
				mu.Lock()
				came = append(came, time.Now())
				if s.Over == keys.NoLimit {
					let++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i := range came {
		n := 0
		for _, at := range came[i:] {
			if at.Sub(came[i]) > 100*time.Millisecond {
				break
			}
			n++
		}
		most = max(most, n)
	}
	return let, most
}

// Through a real server, the limits of a key hold for three routers: not passed by more than what comes in
// 100 ms, and used to at least 98 %.
func TestLimitsHoldForRoutersAtAServer(t *testing.T) {
	server := valkeytest.Start(t)
	routers := []*rig{newMet(t, at(server)), newMet(t, at(server)), newMet(t, at(server))}
	for _, r := range routers {
		within(t, soon, "all are met", func() bool { return r.store().Routers == 2 })
	}
	of := map[string]keys.Limits{
		"requests": {Requests: 500}, "running": {AtOnce: 500}, "tokens": {Tokens: 5000}, "kv": {KV: 5000},
	}
	for name, limits := range of {
		let, most := 0, 0
		for _, try := range []string{"1", "2", "3", "4", "5"} { // a busy machine may delay messages
			if let, most = flood(routers, name+try, limits); let <= 500+most {
				break
			}
		}
		t.Logf("%s: %d are let in, the limit is 500, at most %d came in 100 ms", name, let, most)
		if let < 490 || let > 500+most {
			t.Errorf("%s: %d are let in, the limit is 500, at most %d came in 100 ms", name, let, most)
		}
	}
}

// A router that is asked directly tells what keys use, and what has changed. When the router falls silent,
// its requests count until their minute is over, and its running requests until the patience is over.
func TestPeersTellWhatKeysUse(t *testing.T) {
	const b = "http://b:80"
	of := keys.Limits{Requests: 6, AtOnce: 3}
	var asked *rig
	peering(t, []string{b}, func(r *rig) {
		here, there := r.asks("team", of), asked.asks("team", of)
		want := func(over keys.Limit, left int) *keys.Hold {
			t.Helper()
			h, s := here()
			if s.Over != over || s.Requests != left {
				t.Errorf("%q and %d requests are left, want %q and %d", s.Over, s.Requests, over, left)
			}
			return h
		}
		for n := range 2 {
			there()
			time.Sleep(300 * time.Millisecond)
			want(keys.NoLimit, 4-2*n).End(time.Now())
		}
		hold, _ := there()
		time.Sleep(300 * time.Millisecond)
		want(keys.OfRunning, 1)
		hold.End(time.Now())
		time.Sleep(300 * time.Millisecond)
		want(keys.NoLimit, 0).End(time.Now())
		r.net.Refuse("b:80", true)
		r.net.Cut("b:80")
		time.Sleep(5 * time.Second)
		want(keys.OfRequests, 0)
		time.Sleep(time.Minute)
		want(keys.NoLimit, 5)
	}, func(r *rig) {
		asked = newRig(t)
		r.serve("b:80", asked.peers.ServeHTTP)
	})
}

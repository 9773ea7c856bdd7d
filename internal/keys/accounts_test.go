package keys

import (
	"math/rand/v2"
	"testing"
	"time"
)

// tell lets each router report to the others.
func tell(routers []*Accounts, told []uint64, now time.Time) {
	for i, from := range routers {
		uses, version := from.Uses(told[i], now)
		for j, to := range routers {
			if i != j {
				to.Hear(string(rune('a'+i)), uses, told[i] == 0, now, 3*time.Second)
			}
		}
		told[i] = version
	}
}

// The limits of a key hold for three routers that report to each other ten times per second. A limit is
// exceeded at most by the requests that begin between two reports, and at least 98 % of the limit are used.
func TestLimitsHoldForAllRouters(t *testing.T) {
	of := Limits{Requests: 600, AtOnce: 30}
	routers := []*Accounts{new(Accounts), new(Accounts), new(Accounts)}
	told := make([]uint64, len(routers))
	chance, now := rand.New(rand.NewPCG(1, 2)), time.Unix(1_800_000_000, 0)
	const each = 10 * time.Millisecond // a request comes to one of the routers
	between := int(100 * time.Millisecond / each)
	type running struct {
		h  *Hold
		at time.Time
	}
	var all []running
	var began []time.Time
	for i := range int(5 * time.Minute / each) {
		now = now.Add(each)
		if i%between == 0 {
			if i%(10*between) == 0 {
				clear(told)
			}
			tell(routers, told, now)
		}
		for len(all) > 0 && all[0].at.Before(now) {
			all[0].h.End(now)
			all = all[1:]
		}
		if len(all) > of.AtOnce+between {
			t.Fatalf("%d requests run, the limit is %d", len(all), of.AtOnce)
		}
		h, s := routers[chance.IntN(3)].of("team").Reserve(of, Ask{}, now)
		if s.Over == NoLimit {
			all = append(all, running{h, now.Add(500 * time.Millisecond)})
			began = append(began, now)
		}
	}
	for i, at := range began {
		n := 0
		for _, other := range began[i:] {
			if other.Sub(at) >= time.Minute {
				break
			}
			n++
		}
		if n > of.Requests+between {
			t.Fatalf("%d requests in a minute, the limit is %d", n, of.Requests)
		}
	}
	if least := of.Requests * 5 * 98 / 100; len(began) < least {
		t.Errorf("%d requests in five minutes, want at least %d", len(began), least)
	}
}

// If a router no longer reports, its reported uses count until their minute ends, and its running requests
// count until the patience ends. A request that waits for the time that the router names is admitted.
func TestASilentRouterPasses(t *testing.T) {
	of := Limits{Requests: 10, Tokens: 1000, AtOnce: 2, KV: 100}
	now := time.Unix(1_800_000_000, 0)
	there, here := new(Accounts), new(Accounts)
	reserve := func(as *Accounts) Standing {
		_, s := as.of("team").Reserve(of, Ask{Prompt: 50}, now)
		return s
	}
	here.of("team")
	reserve(there)
	reserve(there)
	uses, version := there.Uses(0, now)
	here.Hear("x", uses, true, now, time.Second)
	s := reserve(here)
	if s.Over != OfRunning || s.Requests != 8 || s.Tokens != 900 || s.RequestsReset < time.Minute {
		t.Errorf("%+v while two requests run elsewhere", s)
	}
	if again, next := there.Uses(version, now); len(again) > 0 || next != version || version != there.Version() {
		t.Errorf("%+v is new", again)
	}
	now = now.Add(2 * time.Second)
	of = Limits{Requests: 2, Tokens: of.Tokens}
	s = reserve(here)
	if s.Over != OfRequests || s.Wait < 57*time.Second || s.Wait > 59*time.Second {
		t.Errorf("%+v after two seconds", s)
	}
	if now = now.Add(s.Wait); reserve(here).Over != NoLimit {
		t.Error("refused after the wait that was told")
	}
	here.Hear("x", nil, true, now, time.Second)
	if a := here.of("team"); len(a.elsewhere) != 0 {
		t.Errorf("%+v is left of a router that uses nothing", a.elsewhere)
	}
	here.Hear("x", []Use{{Key: "unknown", Running: 1}}, true, now, time.Second)
	if len(here.by) != 1 {
		t.Error("another router made an account")
	}
}

// Reports are plausible, even if the clock goes back. A router that no longer reports leaves nothing behind.
func TestUsesArePlausible(t *testing.T) {
	chance, now := rand.New(rand.NewPCG(3, 4)), time.Unix(1_800_000_000, 0)
	as, heard := new(Accounts), new(Accounts)
	to := heard.of("team")
	for i := range 2000 {
		now = now.Add(time.Duration(chance.IntN(4000)-1000) * time.Millisecond)
		h, _ := as.of("team").Reserve(Limits{Tokens: 1 << 40}, Ask{Prompt: chance.IntN(100)}, now)
		h.Use(chance.IntN(100), 0, 1, now)
		h.End(now.Add(time.Duration(chance.IntN(100)) * time.Second))
		uses, _ := as.Uses(0, now)
		for _, u := range uses {
			if !u.Plausible() {
				t.Fatalf("%+v is told", u)
			}
		}
		heard.Hear(string(rune('a'+i%50)), uses, true, now, time.Second)
	}
	now = now.Add(5 * time.Minute)
	heard.Hear("last", []Use{{Key: "team", Running: 1}}, true, now, time.Second)
	if len(to.elsewhere) != 1 {
		t.Errorf("%d routers are left", len(to.elsewhere))
	}
}

// BenchmarkUses measures a report of 10,000 keys, one of which changes.
func BenchmarkUses(b *testing.B) {
	as, now := new(Accounts), time.Now()
	for i := range 10_000 {
		as.of(string(rune('a'+i))).Reserve(Limits{}, Ask{}, now)
	}
	for name, all := range map[string]bool{"all": true, "changed": false} {
		b.Run(name, func(b *testing.B) {
			_, version := as.Uses(0, now)
			for b.Loop() {
				as.of("a").Reserve(Limits{}, Ask{}, now)
				if all {
					version = 0
				}
				_, version = as.Uses(version, now)
			}
		})
	}
}

package keys

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// twin is a slow, obvious account: a list of all uses.
type twin struct {
	requests, tokens []counted
	running          int
	kv               int64
}

type counted struct {
	slot int64
	n    int64
}

func slotOf(now time.Time) int64 { return now.UnixNano() / int64(slot) }

// sum is what counts now: the slots of the last minute.
func sum(all []counted, now time.Time) (n int64) {
	for _, c := range all {
		if slotOf(now)-c.slot < slots {
			n += c.n
		}
	}
	return n
}

func (w *twin) reserve(of Limits, tokens int64, now time.Time) Limit {
	switch {
	case sum(w.requests, now) >= int64(of.Requests):
		return OfRequests
	case sum(w.tokens, now)+tokens > int64(of.Tokens):
		return OfTokens
	case w.running >= of.AtOnce:
		return OfRunning
	case w.kv+tokens > int64(of.KV):
		return OfKV
	}
	w.running++
	w.kv += tokens
	w.requests = append(w.requests, counted{slotOf(now), 1})
	w.tokens = append(w.tokens, counted{slotOf(now), tokens})
	return NoLimit
}

// An account decides like its slow twin, for any requests.
func TestAccountIsAsItsTwin(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	refused := map[Limit]int{}
	for range 30 {
		of := Limits{
			Requests: 5 + chance.IntN(20), Tokens: 100 + chance.IntN(500), AtOnce: 1 + chance.IntN(8),
			KV: 100 + chance.IntN(500),
		}
		a, w := new(Accounts).of("a"), new(twin)
		now := time.Unix(1_800_000_000, 0)
		type running struct {
			h     *Hold
			at    int // in the twin's list
			asked int64
		}
		var all []running
		for range 500 {
			now = now.Add(time.Duration(chance.ExpFloat64() * float64(4*time.Second)))
			if len(all) > 0 && chance.IntN(2) == 0 {
				i := chance.IntN(len(all))
				r, used := all[i], int64(chance.IntN(100))
				all = append(all[:i], all[i+1:]...)
				r.h.Use(int(used), 0, 1, now)
				r.h.End(now)
				r.h.End(now)
				w.running--
				w.kv -= r.asked
				if c := &w.tokens[r.at]; slotOf(now)-c.slot < slots {
					c.n = used
				} else if used > r.asked {
					w.tokens = append(w.tokens, counted{slotOf(now), used - r.asked})
				}
			}
			prompt := 1 + chance.IntN(90)
			h, s := a.Reserve(of, Ask{Prompt: prompt}, now)
			over, wait := s.Over, s.Wait
			if want := w.reserve(of, int64(prompt), now); over != want {
				t.Fatalf("%+v: %q, want %q", of, over, want)
			}
			if refused[over]++; over == NoLimit {
				all = append(all, running{h, len(w.tokens) - 1, int64(prompt)})
			}
			if over == OfRequests && sum(w.requests, now.Add(wait)) >= int64(of.Requests) ||
				over == OfTokens && sum(w.tokens, now.Add(wait))+int64(prompt) > int64(of.Tokens) {
				t.Fatalf("refused by %q after the wait of %v, too", over, wait)
			}
			if int64(s.Requests) != max(0, int64(of.Requests)-sum(w.requests, now)) ||
				sum(w.requests, now.Add(s.RequestsReset)) > 0 || sum(w.tokens, now.Add(s.TokensReset)) > 0 {
				t.Fatalf("standing is %+v", s)
			}
		}
	}
	for _, l := range []Limit{NoLimit, OfRequests, OfTokens, OfRunning, OfKV} {
		if refused[l] < 20 {
			t.Errorf("%q decided only %d times", l, refused[l])
		}
	}
}

// 64 connections that ask for as much as they can get stay under a limit by less than 2 %, and never get over
// the limit in any minute.
func TestLimitsUnder64Connections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := Limits{Requests: 600, Tokens: 60_000, AtOnce: 40, KV: 8_000}
		var mu sync.Mutex
		var began []time.Time
		most, running := 0, 0
		a, start := new(Accounts).of("a"), time.Now()
		var wg sync.WaitGroup
		for c := range 64 {
			wg.Go(func() {
				chance := rand.New(rand.NewPCG(uint64(c), 1))
				for time.Since(start) < 10*time.Minute {
					h, s := a.Reserve(of, Ask{Prompt: 50, MaxTokens: 50, Answers: 1, Expected: 256}, time.Now())
					if s.Over != NoLimit {
						time.Sleep(s.Wait)
						continue
					}
					mu.Lock()
					began = append(began, time.Now())
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(time.Duration(chance.IntN(1000)) * time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					h.Use(50, 50, 1, time.Now())
					h.End(time.Now())
				}
			})
		}
		wg.Wait()
		for i, at := range began { // each minute that begins with a request
			n := 0
			for _, other := range began[i:] {
				if other.Sub(at) < time.Minute {
					n++
				}
			}
			if n > of.Requests {
				t.Fatalf("%d requests in a minute, the limit is %d", n, of.Requests)
			}
		}
		if least := of.Requests * 10 * 98 / 100; len(began) < least {
			t.Errorf("%d requests in ten minutes, want at least %d", len(began), least)
		}
		if most > of.AtOnce {
			t.Errorf("%d requests at once, the limit is %d", most, of.AtOnce)
		}
		if a.running != 0 || a.kv != 0 {
			t.Errorf("%d requests and %d KV tokens are left", a.running, a.kv)
		}
	})
}

// Tokens beyond a reservation are charged once, even after the answer's end. Unused tokens are given back.
// The lengths of answers are learned.
func TestTokensAreChargedByUse(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	of := Limits{Tokens: 1000}
	a := new(Accounts).of("a")
	left := func() int {
		a.tokens.turn(now)
		return a.standing(of, new(Use), now).Tokens
	}
	h, _ := a.Reserve(of, Ask{Prompt: 100, Answers: 1, Expected: 500}, now)
	if left() != 400 {
		t.Errorf("%d left while 600 are reserved", left())
	}
	h.Use(100, 50, 1, now)
	h.End(now)
	if left() != 850 {
		t.Errorf("%d left when 150 were used", left())
	}
	h.Use(10, 40, 1, now) // a computation that went on for others
	if left() != 800 {
		t.Errorf("%d left when 200 were used", left())
	}
	h, _ = a.Reserve(of, Ask{Prompt: 100, Answers: 2, Expected: 500}, now)
	if left() != 800-100-2*49 {
		t.Errorf("%d left: answers have 49 tokens in the mean", left())
	}
	h.End(now.Add(2 * time.Minute))
	if now = now.Add(2 * time.Minute); left() != 1000 {
		t.Errorf("%d left after two minutes", left())
	}
	if h, s := a.Reserve(of, Ask{Prompt: 5000}, now); s.Over != NoLimit || s.Tokens != 0 {
		t.Errorf("%v: a request larger than the limit never gets in", s.Over)
	} else {
		h.Use(5000, 0, 0, now)
		h.End(now)
	}
	_, s := a.Reserve(of, Ask{Prompt: 1}, now)
	if s.Over != OfTokens || s.Wait < time.Minute || s.Wait > time.Minute+slot {
		t.Errorf("%q, %v after a request that used five limits", s.Over, s.Wait)
	}
	var none *Hold
	none.Use(1, 1, 1, now)
	none.End(now)
}

// The count of a prompt replaces its estimate, and corrects later estimates. A request that is too large for
// what is left of a limit gives everything back, and is not counted as a request.
func TestCountReplacesTheEstimate(t *testing.T) {
	for name, of := range map[string]Limits{
		"KV": {Requests: 9, KV: 1000}, "tokens": {Requests: 9, Tokens: 1000},
	} {
		now := time.Unix(1_800_000_000, 0)
		a := new(Accounts).of("a")
		ask := Ask{Prompt: 100, Rough: true, Answers: 1, Expected: 50}
		begin := func() (*Hold, Limit) {
			h, s := a.Reserve(of, ask, now)
			return h, s.Over
		}
		reserved := func() int64 { return a.kv + a.tokens.sum }
		all := func(want int64) int64 { // what stands in both sums, of which one has no limit
			if of.KV > 0 {
				return 2 * want
			}
			return want
		}
		first, _ := begin()
		second, _ := begin()
		if over, _ := first.Count(400, now); over != NoLimit || reserved() != all(450+150) {
			t.Errorf("%s: %q, %d are reserved after a prompt of 400 and an estimate of 100", name, over, reserved())
		}
		if over, wait := second.Count(600, now); over == NoLimit || wait <= 0 || reserved() != all(450) ||
			a.requests.sum != 1 {
			t.Errorf("%s: %q after %v, %d are reserved of %d requests", name, over, wait, reserved(), a.requests.sum)
		}
		second.End(now)
		first.Count(1, now) // a second count changes nothing
		third, over := begin()
		if want := int64(100 * (4 + 0.1*2)); over != NoLimit || third.prompt != want {
			t.Errorf("%s: %q, a prompt of an estimated 100 reserves %d, want %d", name, over, third.prompt, want)
		}
		first.End(now)
		third.End(now)
		if a.kv != 0 || a.tokens.sum != 0 || a.running != 0 {
			t.Errorf("%s: %d KV, %d tokens and %d requests are left", name, a.kv, a.tokens.sum, a.running)
		}
		late, _ := begin()
		now = now.Add(2 * time.Minute)
		late.Count(700, now) // counted when its minute is over
		if late.End(now); a.tokens.sum != 0 {
			t.Errorf("%s: %d tokens are left of a request of an earlier minute", name, a.tokens.sum)
		}
	}
	var none *Hold
	if over, _ := none.Count(1, time.Now()); over != NoLimit {
		t.Error("a request without limits is refused")
	}
}

// Accounts outlive reloads by the names of their keys, also where the key is missing from some versions of
// the file, and for as long as something counts.
func TestAccountsOutliveReloads(t *testing.T) {
	of := Limits{Requests: 1, AtOnce: 1}
	list := func() []Key { return []Key{{Name: "a", Limits: of}, {Name: "b", Hash: [32]byte{1}}} }
	now := time.Unix(1_800_000_000, 0)
	all := new(Accounts)
	reload := func(list []Key) *Table {
		t := NewTable(list, all)
		all.Keep(t.Limits, now)
		return t
	}
	reserve := func() (*Hold, Limit) {
		h, s := reload(list()).byName["a"].Account.Reserve(of, Ask{}, now)
		return h, s.Over
	}
	hold, _ := reserve()
	reload([]Key{{Name: "a"}})
	reload(list()[1:])
	if _, over := reserve(); over != OfRequests {
		t.Errorf("%q after a file without the key, want %q", over, OfRequests)
	}
	now = now.Add(2 * time.Minute)
	reload(nil)
	if _, over := reserve(); over != OfRunning {
		t.Errorf("%q while a request runs, want %q", over, OfRunning)
	}
	hold.End(now)
	if reload(nil); len(all.by)+all.live.Len() != 0 {
		t.Error("an account is left in which nothing counts")
	}
	if again := reload(list()); again.byName["b"].Account != nil || len(all.by) != 1 {
		t.Error("a key without limits has an account")
	}
}

// BenchmarkReserve measures the cost of limits per request.
func BenchmarkReserve(b *testing.B) {
	of := Limits{Requests: 1 << 40, Tokens: 1 << 40, AtOnce: 10, KV: 1 << 40}
	a, now := new(Accounts).of("a"), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		h, _ := a.Reserve(of, Ask{Prompt: 100, Answers: 1, Expected: 50}, now)
		h.Use(100, 50, 1, now)
		h.End(now)
	}
}

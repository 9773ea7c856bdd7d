package planner

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
)

// The store is compared with a list of everything that was reported. It never believes what is too old or was
// lost, and it believes what is new.
func TestStoreBelievesWhatIsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := newPlace(), time.Unix(1000, 0)
		believed := map[kv.Key]time.Time{} // of the newest belief
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			keys := chainOf(rapid.IntRange(1, 3).Draw(t, "prompt"), rapid.IntRange(1, 100).Draw(t, "blocks"))
			switch from := rapid.IntRange(0, len(keys)-1).Draw(t, "from"); {
			case rapid.IntRange(0, 3).Draw(t, "lost") == 0:
				s.lost(keys, from)
				for _, key := range chainOf(int(keys[0]/1000), 100)[from:] {
					delete(believed, key)
				}
			default:
				s.has(keys, now)
				for _, key := range keys {
					believed[key] = now
				}
			}
			least, most := 0, 0
			for ; least < len(keys) && age(believed, keys[least], now) < storeLife/2; least++ {
			}
			for ; most < len(keys) && age(believed, keys[most], now) < storeLife; most++ {
			}
			if got := s.depth(keys, now); got < least || got > most {
				t.Fatalf("%d of %d blocks are believed to be there, want %d to %d", got, len(keys), least, most)
			}
		}
	})
}

// chainOf returns the keys of the first blocks of a prompt, which shares none with other prompts.
func chainOf(prompt, blocks int) (keys []kv.Key) {
	for i := range blocks {
		keys = append(keys, kv.Key(1000*prompt+i))
	}
	return keys
}

func age(believed map[kv.Key]time.Time, key kv.Key, now time.Time) time.Duration {
	if at, known := believed[key]; known {
		return now.Sub(at)
	}
	return storeLife
}

// Only a prompt that the store can have as a whole is asked for.
func TestWhatTheStoreMustHave(t *testing.T) {
	request := func(change func(*Request)) *Request {
		r := &Request{Tokens: 600, Exact: true, SplitOK: true, StoreUnit: 1, DecodeBlock: 16}
		r.DecodeKeys = chainOf(1, 37)
		change(r)
		return r
	}
	for name, tt := range map[string]struct {
		change func(*Request)
		want   int
	}{
		"whole blocks":                       {func(*Request) {}, 592},
		"the engine computes the last one":   {func(r *Request) { r.Tokens = 592 }, 576},
		"chunks":                             {func(r *Request) { r.StoreUnit = 256 }, 512},
		"shorter than a chunk":               {func(r *Request) { r.StoreUnit, r.Tokens = 256, 200 }, 0},
		"no store":                           {func(r *Request) { r.StoreUnit = 0 }, 0},
		"the number of tokens is a guess":    {func(r *Request) { r.Exact = false }, 0},
		"it cannot be split":                 {func(r *Request) { r.SplitOK = false }, 0},
		"the report is of one answer of two": {func(r *Request) { r.Sequences = 2 }, 0},
		"text":                               {func(r *Request) { r.DecodeBlock = 0 }, 0},
	} {
		if got := request(tt.change).whole(); got != tt.want {
			t.Errorf("%s: %d tokens, want %d", name, got, tt.want)
		}
	}
}

// Events teach what the store has, once a decode engine has read from it, and until one finds nothing of a
// prompt without a prefill leg.
func TestStoreBelievesProvenEvents(t *testing.T) {
	now := time.Unix(10_000, 0)
	keys := chainOf(1, 40)
	request := &Request{Tokens: 600, Exact: true, SplitOK: true, StoreUnit: 1, DecodeBlock: 16}
	request.DecodeKeys = keys[:37]
	read := Report{Cached: 592}
	type step func(s *place)
	gave := func(r Report) step { return func(s *place) { s.gave(request, r, now) } }
	event := func(kind kv.EventKind, blocks ...int) step {
		return func(s *place) {
			all := Store{of: map[string]*place{"m": s}}
			all.heard("m", kind, func() (named []kv.Named) {
				for _, i := range blocks {
					b := kv.Named{Key: keys[i]}
					if i > 0 {
						b.Before = keys[i-1]
					}
					named = append(named, b)
				}
				return named
			})
		}
	}
	later := func(by time.Duration) step {
		return func(s *place) {
			now = now.Add(by)
			s.depth(keys, now)
		}
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  int
	}{
		{"not proven", []step{event(kv.Stored, 0, 1, 2)}, 0},
		{"behind what was read", []step{gave(read), event(kv.Stored, 37, 38)}, 39},
		{"a hole", []step{gave(read), event(kv.Stored, 38)}, 37},
		{"from its own memory", []step{gave(Report{Own: 592, Cached: 592}), event(kv.Stored, 0)}, 0},
		{"saved late", []step{gave(Report{Cached: 16}), event(kv.Stored, 1, 2)}, 3},
		{"nothing was there", []step{gave(read), gave(Report{Alone: true}), event(kv.Stored, 0)}, 0},
		{"nothing was there yet", []step{gave(read), gave(Report{}), event(kv.Stored, 0)}, 1},
		{"removed", []step{gave(read), event(kv.Removed, 5)}, 5},
		{"as long as what is before", []step{
			gave(read), later(storeLife / 2), event(kv.Stored, 37), later(storeLife/2 - 1),
		}, 38},
		{"no longer", []step{
			gave(read), later(storeLife / 2), event(kv.Stored, 37), later(storeLife / 2),
		}, 0},
	} {
		now = time.Unix(int64(12*storeLife.Seconds()), 0)
		s := newPlace()
		later(0)(s)
		for _, do := range tt.steps {
			do(s)
		}
		if got := s.depth(keys, now); got != tt.want {
			t.Errorf("%s: %d blocks, want %d", tt.name, got, tt.want)
		}
	}
}

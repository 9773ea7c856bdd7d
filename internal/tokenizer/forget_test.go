package tokenizer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// process is an engine whose process can be replaced. The new process makes other ids.
type process struct {
	mu    sync.Mutex
	first int // id of every prompt
	asked int
}

func (p *process) post(context.Context, string, []byte) (int, []byte, error) {
	p.mu.Lock()
	id := p.first
	p.asked++
	p.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	return 200, fmt.Appendf(nil, `{"token_ids":[%d]}`, id), nil
}

func (p *process) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first++
}

func (p *process) via(key, version string) Via {
	return Via{Key: key, Release: replica.Release{Root: "org/m", Version: version}, Post: p.post, Render: true}
}

func complete(t *testing.T, r *Resolver, via Via) Result {
	t.Helper()
	return r.Completion(t.Context(), via, "m", []byte(`"a"`), []byte(`{}`))
}

// Ids are remembered for engines of the release that made them.
func TestIDsAreOfARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := &process{first: 100}
		next := &process{first: 200}
		r := New(usual())
		for _, tt := range []struct {
			via    Via
			id     uint32
			source Source
		}{
			{old.via("p0", "0.32.0"), 100, Render},
			{next.via("p1", "0.33.0"), 200, Render},
			{old.via("p2", "0.32.0"), 100, Cache},
			{next.via("p3", "0.33.0"), 200, Cache},
		} {
			got := complete(t, r, tt.via)
			same := len(got.IDs) == 1 && got.IDs[0] == tt.id && got.Of == tt.via.Release
			if !same || got.Source != tt.source || !got.Exact {
				t.Errorf("%s of %s: %+v, want id %d from %v", tt.via.Key, tt.via.Release.Version, got, tt.id, tt.source)
			}
		}
	})
}

// The ids of an engine are valid as long as its process lives. The ids of other engines stay.
func TestForgetDropsWhatOneEngineSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p0 := &process{first: 100}
		p1 := &process{first: 200}
		r := New(usual())
		other := func() Result {
			return r.Completion(t.Context(), p1.via("p1", "1"), "m", []byte(`"b"`), []byte(`{}`))
		}
		complete(t, r, p0.via("p0", "1"))
		other()
		room := r.cache.room
		p0.restart()
		r.Forget("p0")
		if got := complete(t, r, p0.via("p0", "1")); got.Source != Render || got.IDs[0] != 101 {
			t.Errorf("behind the restart: %+v, want the ids of the new process", got)
		}
		if got := other(); got.Source != Cache || got.IDs[0] != 200 {
			t.Errorf("another engine's ids: %+v, want them remembered", got)
		}
		if r.cache.room != room || len(r.cache.m) != 2 || r.cache.order.Len() != 2 {
			t.Errorf("%d bytes are left of %d with %d and %d entries",
				r.cache.room, room, len(r.cache.m), r.cache.order.Len())
		}
	})
}

// If the old process is forgotten while it answers a question, the caller that asked gets the answer, and no
// other caller does.
func TestForgetDropsWhatIsBeingAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p0, r := &process{first: 100}, New(usual())
		var before Result
		var wg sync.WaitGroup
		wg.Go(func() { before = complete(t, r, p0.via("p0", "1")) })
		synctest.Wait()
		p0.restart()
		r.Forget("p0")
		meanwhile := complete(t, r, p0.via("p0", "1"))
		wg.Wait()
		after := complete(t, r, p0.via("p0", "1"))
		if before.IDs[0] != 100 || meanwhile.IDs[0] != 101 || after.IDs[0] != 101 || after.Source != Cache {
			t.Errorf("ids %v, then %v, then %v from %v; want 100, and 101 from then on",
				before.IDs, meanwhile.IDs, after.IDs, after.Source)
		}
		if len(r.calls.m) != 0 {
			t.Errorf("%d calls are left", len(r.calls.m))
		}
	})
}

// An engine that was forgotten may have got render with its new process.
func TestForgetAsksForWhatWasMissing(t *testing.T) {
	e, r := &fakeEngine{noRender: 403}, New(usual(func(o *Options) { o.CacheBytes = 0 }))
	r.Chat(t.Context(), e.via(), []byte(chatBody))
	e.noRender = 0
	if got := r.Chat(t.Context(), e.via(), []byte(chatBody)); got.Source != Tokenize {
		t.Fatalf("%+v: what is missing is not remembered", got)
	}
	r.Forget("p0")
	if got := r.Chat(t.Context(), e.via(), []byte(chatBody)); got.Source != Render {
		t.Errorf("%+v, want it rendered", got)
	}
}

// A template may contain the date, so its ids are remembered only for a while. The ids of a text stay.
func TestChatsAreRememberedForAWhile(t *testing.T) {
	for _, tt := range []struct {
		ttl  time.Duration
		want []bool // remembered at once, after a minute less a nanosecond, after a minute
	}{
		{time.Minute, []bool{true, true, false}},
		{time.Hour, []bool{true, true, true}},
		{0, []bool{false, false, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, r := &fakeEngine{}, New(usual(func(o *Options) { o.ChatTTL = tt.ttl }))
			start := time.Now()
			text := func() Source {
				return r.Completion(t.Context(), e.via(), "m", []byte(`"a"`), []byte(`{}`)).Source
			}
			text()
			for i, at := range []time.Duration{0, time.Minute - 1, time.Minute} {
				if i == 0 {
					r.Chat(t.Context(), e.via(), []byte(chatBody))
				}
				time.Sleep(at - time.Since(start))
				if got := r.Chat(t.Context(), e.via(), []byte(chatBody)).Source; (got == Cache) != tt.want[i] {
					t.Errorf("ttl %v, after %v: %v, remembered %v wanted", tt.ttl, at, got, tt.want[i])
				}
				if got := text(); got != Cache {
					t.Errorf("ttl %v, after %v: a text from %v", tt.ttl, at, got)
				}
			}
		})
	}
}

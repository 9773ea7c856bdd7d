package keys

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Recent counts what each key has used lately, for people to look at. The zero value is empty. It holds about
// a kilobyte for each key that was used within the hour. Safe for concurrent use.
type Recent struct {
	mu sync.Mutex // guards by
	by map[string]*recent
}

// Sums are what a key has used in a time.
type Sums struct {
	Requests  int64 // prompts that engines answered, wholly or in part
	Refused   int64 // requests above a limit of the key
	Prompt    int64 // tokens
	Cached    int64 // a part of Prompt
	Generated int64 // tokens
}

// Lately is what a key has used in the last minute and in the last hour.
type Lately struct {
	Key          string
	Minute, Hour Sums
	Over         Limit // that refused its newest refused request within the minute, else [NoLimit]
}

// recent is what is counted for one key.
type recent struct {
	minute, hour past
	over         Limit // that refused the newest refused request
}

// past sums over a time that goes by in slots. An amount counts for the whole time and at most one slot more.
type past struct {
	slot  time.Duration
	at    int64 // number of the newest slot, counted since 1970
	slots []Sums
}

func newPast(slot, of time.Duration) past {
	return past{slot: slot, slots: make([]Sums, of/slot+1)}
}

// now returns the slot of a time, and forgets what is too old. A clock that went back changes nothing.
func (p *past) now(now time.Time) *Sums {
	n, at := int64(len(p.slots)), now.UnixNano()/int64(p.slot)
	if at-p.at >= n {
		clear(p.slots)
		p.at = at
	}
	for ; p.at < at; p.at++ {
		p.slots[(p.at+1)%n] = Sums{}
	}
	return &p.slots[p.at%n]
}

func (p *past) sum(now time.Time) (all Sums) {
	p.now(now)
	for i := range p.slots {
		all.add(&p.slots[i])
	}
	return all
}

func (s *Sums) add(o *Sums) {
	s.Requests += o.Requests
	s.Refused += o.Refused
	s.Prompt += o.Prompt
	s.Cached += o.Cached
	s.Generated += o.Generated
}

// Use counts what a key has used.
func (r *Recent) Use(u Used, now time.Time) {
	r.count(u.Key, NoLimit, &Sums{
		Requests: u.Requests, Prompt: u.Prompt, Cached: u.Cached, Generated: u.Generated,
	}, now)
}

// Refuse counts a request that a limit of its key has refused.
func (r *Recent) Refuse(key string, over Limit, now time.Time) {
	r.count(key, over, &Sums{Refused: 1}, now)
}

func (r *Recent) count(key string, over Limit, s *Sums, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]*recent{}
	}
	k := r.by[key]
	if k == nil {
		k = &recent{minute: newPast(10*time.Second, time.Minute), hour: newPast(5*time.Minute, time.Hour)}
		r.by[key] = k
	}
	k.over = cmp.Or(over, k.over)
	k.minute.now(now).add(s)
	k.hour.now(now).add(s)
}

// List returns the keys that were used within the hour, and forgets the others. The key with most tokens in
// the hour comes first.
func (r *Recent) List(now time.Time) []Lately {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Lately, 0, len(r.by))
	for name, k := range r.by {
		l := Lately{Key: name, Minute: k.minute.sum(now), Hour: k.hour.sum(now)}
		if l.Hour == (Sums{}) {
			delete(r.by, name)
			continue
		}
		if l.Minute.Refused > 0 {
			l.Over = k.over
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Lately) int {
		return cmp.Or(
			cmp.Compare(b.Hour.Prompt+b.Hour.Generated, a.Hour.Prompt+a.Hour.Generated), cmp.Compare(a.Key, b.Key),
		)
	})
	return all
}

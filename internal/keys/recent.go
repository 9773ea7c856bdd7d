package keys

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Recent counts what each key has used lately, for people to look at. The zero value is empty. It holds about
// a kilobyte for each key that was used within the hour. Safe for concurrent use.
type Recent struct {
	mu sync.RWMutex // guards by; held for reading while a key counts
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
	Over         Limit // that refused the newest refused request of the minute, else [NoLimit]
}

// recent is what is counted for one key.
type recent struct {
	mu           sync.Mutex // guards the following
	minute, hour past
	over         Limit // that refused the newest refused request
}

// past sums over a time that goes by in slots. An amount counts for the whole time and at most one slot more.
type past struct {
	slot  time.Duration
	at    int64 // number of the newest slot, counted since 1970
	sum   Sums  // of all slots
	slots []Sums
}

func newPast(slot, of time.Duration) past {
	return past{slot: slot, slots: make([]Sums, of/slot+1)}
}

// turn forgets what is too old. A clock that went back changes nothing.
func (p *past) turn(now time.Time) {
	n, at := int64(len(p.slots)), now.UnixNano()/int64(p.slot)
	if at-p.at >= n {
		clear(p.slots)
		p.at, p.sum = at, Sums{}
	}
	for ; p.at < at; p.at++ {
		oldest := &p.slots[(p.at+1)%n]
		p.sum.add(oldest, -1)
		*oldest = Sums{}
	}
}

func (p *past) count(s *Sums, now time.Time) {
	p.turn(now)
	p.slots[p.at%int64(len(p.slots))].add(s, 1)
	p.sum.add(s, 1)
}

func (s *Sums) add(o *Sums, times int64) {
	s.Requests += times * o.Requests
	s.Refused += times * o.Refused
	s.Prompt += times * o.Prompt
	s.Cached += times * o.Cached
	s.Generated += times * o.Generated
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
	r.mu.RLock()
	k := r.by[key]
	if k != nil {
		k.count(over, s, now)
	}
	r.mu.RUnlock()
	if k != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]*recent{}
	}
	if r.by[key] == nil {
		r.by[key] = &recent{
			minute: newPast(10*time.Second, time.Minute), hour: newPast(5*time.Minute, time.Hour),
		}
	}
	r.by[key].count(over, s, now)
}

func (k *recent) count(over Limit, s *Sums, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = cmp.Or(over, k.over)
	k.minute.count(s, now)
	k.hour.count(s, now)
}

// lately returns what was used until now.
func (k *recent) lately(key string, now time.Time) Lately {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.minute.turn(now)
	k.hour.turn(now)
	l := Lately{Key: key, Minute: k.minute.sum, Hour: k.hour.sum}
	if l.Minute.Refused > 0 {
		l.Over = k.over
	}
	return l
}

// List returns the keys that were used within the hour, and forgets the others. The key with most tokens in
// the hour comes first.
func (r *Recent) List(now time.Time) []Lately {
	r.mu.RLock()
	known := maps.Clone(r.by)
	r.mu.RUnlock()
	all, idle := make([]Lately, 0, len(known)), []string(nil)
	for key, k := range known {
		if l := k.lately(key, now); l.Hour != (Sums{}) {
			all = append(all, l)
		} else {
			idle = append(idle, key)
		}
	}
	r.forget(idle, now)
	slices.SortFunc(all, func(a, b Lately) int {
		return cmp.Or(
			cmp.Compare(b.Hour.Prompt+b.Hour.Generated, a.Hour.Prompt+a.Hour.Generated), cmp.Compare(a.Key, b.Key),
		)
	})
	return all
}

// forget removes keys, unless they have been used in the meantime.
func (r *Recent) forget(idle []string, now time.Time) {
	if len(idle) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range idle {
		if k := r.by[key]; k != nil && k.lately(key, now).Hour == (Sums{}) {
			delete(r.by, key)
		}
	}
}

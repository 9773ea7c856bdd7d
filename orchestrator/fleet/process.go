package fleet

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/internal/replica"
)

// process is the memory about the engine process behind a server's address while the process lives: whether
// its cache may hold wrong blocks. This is neither a setting nor a watcher's state. It stays over reloads,
// and while the server is out of the configuration. If a server is in both pools, its two watchers share the
// process. Safe for concurrent use.
type process struct {
	url   string        // immutable
	epoch atomic.Uint32 // see [salted]; 0 while the cache is trusted; written under the lock of its processes

	started float64 // by the newest look, 0 unknown; guarded by the lock of its processes
}

// processKey identifies a process by its start time, which engines tell to the hundredth of a second. If the
// start is unknown, the URL of the server identifies it. Two processes with the same start time count as
// one, which costs a cache at worst.
type processKey struct {
	started float64
	url     string // "" where started is known
}

func (p *process) key() processKey {
	if p.started != 0 {
		return processKey{started: p.started}
	}
	return processKey{url: p.url}
}

// processes are the processes behind the URLs of servers, and the eras of all distrusted processes,
// including findings of other routers. The zero value has none.
type processes struct {
	changes atomic.Uint64 // how often an era has become another

	mu   sync.Mutex // guards the following, and what processes say that it guards
	by   map[string]*process
	eras map[processKey]replica.Distrust
}

// maxDistrusts is how many processes are remembered as distrusted. Any more must be nonsense from another
// router.
const maxDistrusts = 4096

// of returns the memory about the process at url.
func (ps *processes) of(url string) *process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.by == nil {
		ps.by = map[string]*process{}
	}
	p := ps.by[url]
	if p == nil {
		p = &process{url: url}
		ps.by[url] = p
		ps.raiseLocked(p)
	}
	return p
}

// note notes which process p is now, by its start. It reports whether this ended a distrust: a new process
// has an empty cache.
func (ps *processes) note(p *process, started float64) (trustedAgain bool) {
	if started == 0 {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	was := p.started
	if was == started {
		return false
	}
	before := p.epoch.Load()
	p.started = started
	switch {
	case was != 0:
		p.epoch.Store(0)
	case before > 0: // its start was not known
		ps.rememberLocked(p.key(), before, time.Now())
	}
	ps.raiseLocked(p)
	return before > 0 && p.epoch.Load() == 0
}

// distrust begins a new era of p, and returns the era in force. A request of the era sent may have read wrong
// blocks. If p has a later era already, the blocks of the era sent are out of use, and no new era begins.
func (ps *processes) distrust(p *process, sent uint32, now time.Time) (era uint32) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if era = p.epoch.Load(); era > sent {
		return era
	}
	era++
	ps.rememberLocked(p.key(), era, now)
	p.epoch.Store(era) // even if p has no URL in by any more
	for _, other := range ps.by {
		ps.raiseLocked(other)
	}
	return era
}

// hear adds findings of other routers, or of an earlier process of this router.
func (ps *processes) hear(found []replica.Distrust, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, d := range found {
		seen := time.Unix(d.Seen, 0)
		if d.Past(now) {
			continue
		}
		if seen.After(now) {
			seen = now
		}
		ps.rememberLocked(processKey{d.Started, d.URL}, d.Era, seen)
	}
	for _, p := range ps.by {
		ps.raiseLocked(p)
	}
}

// rememberLocked notes that a process has reached an era, if this is not known yet.
func (ps *processes) rememberLocked(k processKey, era uint32, seen time.Time) {
	d, known := ps.eras[k]
	if !known && len(ps.eras) >= maxDistrusts {
		return
	}
	if ps.eras == nil {
		ps.eras = map[processKey]replica.Distrust{}
	}
	if era > d.Era {
		ps.changes.Add(1)
	}
	ps.eras[k] = replica.Distrust{
		Started: k.started, URL: k.url, Era: max(era, d.Era), Seen: max(seen.Unix(), d.Seen),
	}
}

// raiseLocked brings p into the newest known era of its process.
func (ps *processes) raiseLocked(p *process) {
	if d := ps.eras[p.key()]; d.Era > p.epoch.Load() {
		p.epoch.Store(d.Era)
	}
}

// all returns the findings about all distrusted processes, in no particular order.
func (ps *processes) all(now time.Time) []replica.Distrust {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.by {
		if d, ok := ps.eras[p.key()]; ok {
			d.Seen = now.Unix()
			ps.eras[p.key()] = d
		}
	}
	maps.DeleteFunc(ps.eras, func(_ processKey, d replica.Distrust) bool { return d.Past(now) })
	return slices.Collect(maps.Values(ps.eras))
}

// forget forgets the process at url, which no watcher watches any more. Its eras stay.
func (ps *processes) forget(url string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.by, url)
}

// A decode engine that may have read another request's blocks has the wrong blocks in its prefix cache,
// under the hashes of the prompt. Every later request that begins with this prompt would get a wrong answer
// (seen on vLLM 0.32). The API to empty the cache exists in vLLM's development mode only. But vLLM hashes a
// request's cache_salt into its first block. So every later request to such an engine is salted with a
// number, the epoch. The engine then finds no block that it cached before. Only a restart of the engine ends
// the salting.

// SaltedForPair returns the body for both engines of a pair, for a request that another program sends;
// prefill is nil if the decode engine works alone. The two engines of a split request must get the same
// salt. So one number holds both epochs: the number is new to an engine whenever the engine's epoch is new.
func SaltedForPair(body []byte, prefill, decode *Endpoint) []byte {
	epoch := uint64(decode.CacheEpoch())
	if prefill != nil {
		epoch |= uint64(prefill.CacheEpoch()) << 32
	}
	if epoch == 0 {
		return body
	}
	return salted(body, epoch)
}

// salted puts the epoch into a JSON body, see [Salted].
func salted(body []byte, epoch uint64) []byte {
	return Salted(body, "\x1ftandem-era-"+strconv.FormatUint(epoch, 10))
}

// Salted puts a salt into a JSON body, behind the client's own salt. It returns other bodies unchanged, and
// also bodies whose salt is no text, which every engine refuses. If a name appears twice, engines take the
// last value, so only the last salt of the client counts. An empty salt is none: not every engine refuses it.
func Salted(body []byte, salt string) []byte {
	end := bytes.LastIndexByte(body, '}')
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if end < 0 || len(trimmed) == 0 || trimmed[0] != '{' {
		return body
	}
	var last []byte
	members := 0
	s := rawjson.Scanner{Data: body}
	for key := range s.Members() {
		value := s.Value()
		if members++; string(rawjson.Name(key)) == "cache_salt" {
			last = value
		}
	}
	own := ""
	switch isText := len(last) > 0 && last[0] == '"'; {
	case s.Err() != nil:
		return body
	case isText && !rawjson.Torn(last):
		own = rawjson.Text(last)
	case len(last) > 0 && string(last) != "null":
		return body // the client must get the refusal
	}
	out := append(make([]byte, 0, len(body)+len(own)+len(salt)+24), body[:end]...)
	if members > 0 {
		out = append(out, ',')
	}
	out = rawjson.AppendString(append(out, `"cache_salt":`...), own+salt)
	return append(out, body[end:]...)
}

package enginesim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/kvevents"
)

// Fault is one misbehaviour, given to [Server.Fault] or as JSON to POST /fault of the control listener. For
// is a duration as "1.5s" there.
//
//	kind              what happens
//	fail              the next Count requests (default 1) of Leg and Path are answered with Status (default
//	                  500) without reaching the engine; a GET by its Path only
//	stall             the next Count requests of Leg and Path get no answer until the client leaves
//	cut_stream        the next Count streams of Leg end without a terminator after After events (default 1)
//	stall_stream      the same, but the connection stays open and silent
//	fail_stream       the next Count streams of Leg end with an error event of code 500 after After events, as
//	                  when the core dies
//	null_params       the next Count answers of a prefill leg have kv_transfer_params null
//	miscount          the next Count answers of a Leg count a prompt token more than there are
//	cut_path          nothing that this engine asks of the peer From arrives: loads, notifications and
//	                  heartbeats fail after For (default: the handshake time-out)
//	hold_path         the same, but nothing fails: all of it stands still until mend_path, and goes on then,
//	                  whatever the peer has done with its blocks meanwhile
//	wrong_load        loads from the peer From end well and bring garbage: 200, wrong text, a poisoned prefix
//	                  cache
//	no_load           the engine loads nothing and tells the peer nothing, as without a connector
//	mend_path         ends cut_path, hold_path and wrong_load of From; without From all of them, and no_load
//	freeze            nothing answers for For, engine and side channel included, as under SIGSTOP
//	freeze_core       the same for the engine and its side channel alone: the API process goes on to answer
//	                  /metrics
//	slow_metrics      GET /metrics takes For longer
//	slow              steps take Factor times as long; 1 ends it
//	refuse            connections are refused for For; 0 until accept
//	accept            ends refuse and revives after die
//	die               the engine core dies: open requests get a 500, then the server is gone
//	restart           a new process: requests are cut, another engine id, an empty cache, events from 0; after
//	                  For of refusing
//	drop_events       the next Count batches miss their live send (they can be replayed)
//	duplicate_events  the next Count batches are published twice
//	delay_events      batches go out For late; 0 ends it
//	pause_events      nothing is published until resume_events, or for For
//	resume_events
//	restart_events    the publisher alone restarts: sequence from 0, no history
//	lease             leases of prompts finished from now on last For
//	swap_adapter      the LoRA adapter Body is loaded from Path from now on: the same name, other weights
//	no_orca           no endpoint-load-metrics any more
//	clear             ends all of the above that can end
type Fault struct {
	Kind string `json:"kind"`
	Leg  string `json:"leg,omitzero"`  // prefill, decode, plain, or "" for any
	Path string `json:"path,omitzero"` // "" for any
	Body string `json:"body,omitzero"` // of fail: what the request's body must have in it; "" for any
	// The peer: engine id, URL, side channel, or a host with all engines of it; "" for all.
	From   string        `json:"from,omitzero"`
	Count  int           `json:"count,omitzero"`  // -1 for ever
	Status int           `json:"status,omitzero"` // of fail
	After  int           `json:"after,omitzero"`  // events
	Factor float64       `json:"factor,omitzero"`
	For    time.Duration `json:"for,omitzero"`
}

// UnmarshalJSON reads For as "250ms" or as nanoseconds.
func (f *Fault) UnmarshalJSON(b []byte) error {
	type plain Fault
	aux := struct {
		*plain
		For json.RawMessage `json:"for"`
	}{plain: (*plain)(f)}
	if err := json.Unmarshal(b, &aux); err != nil {
		return err
	}
	if len(aux.For) == 0 {
		return nil
	}
	var text string
	if json.Unmarshal(aux.For, &text) != nil {
		return json.Unmarshal(aux.For, &f.For)
	}
	d, err := time.ParseDuration(text)
	f.For = d
	return err
}

// ParseFault reads the form of a flag: "kind", or "kind,key=value,…" with the keys of the JSON form.
func ParseFault(text string) (Fault, error) {
	kind, rest, _ := strings.Cut(text, ",")
	f := Fault{Kind: kind}
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if pair == "" {
			continue
		}
		if !ok {
			return f, fmt.Errorf("fault %q: %q is no key=value", text, pair)
		}
		if err := f.set(key, value); err != nil {
			return f, fmt.Errorf("fault %q: %s: %w", text, key, err)
		}
	}
	return f, nil
}

func (f *Fault) set(key, value string) error {
	var err error
	switch key {
	case "leg":
		f.Leg = value
	case "path":
		f.Path = value
	case "from":
		f.From = value
	case "count":
		_, err = fmt.Sscan(value, &f.Count)
	case "status":
		_, err = fmt.Sscan(value, &f.Status)
	case "after":
		_, err = fmt.Sscan(value, &f.After)
	case "factor":
		_, err = fmt.Sscan(value, &f.Factor)
	case "body":
		f.Body = value
	case "for":
		f.For, err = time.ParseDuration(value)
	default:
		err = errors.New("no such key")
	}
	return err
}

// faults is what the server has been told to do wrong.
type faults struct {
	armed  atomic.Bool  // whether any rule might match: the hot path looks no further
	orca   atomic.Bool  // no_orca
	scrape atomic.Int64 // slow_metrics
	late   atomic.Int64 // delay_events

	mu        sync.Mutex // guards the following
	rules     []Fault    // fail, stall, cut_stream, stall_stream, fail_stream, null_params
	duplicate int
	delayed   chan lateBatch
}

type lateBatch struct {
	at    time.Time
	rank  *rank
	batch *kvevents.EncodeBatch
}

// question is the leg of what asks the server about itself. Only rules of its own path are for it.
const question = "question"

// take returns the first rule of a kind that fits the request, and uses it up once.
func (f *faults) take(kind, path, leg string) (Fault, bool) { return f.takeFor(kind, path, leg, nil) }

// takeFor is take for a request of that body, where the rule may ask for one.
func (f *faults) takeFor(kind, path, leg string, body []byte) (Fault, bool) {
	if !f.armed.Load() {
		return Fault{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.rules {
		r := &f.rules[i]
		if r.Kind != kind || !bytes.Contains(body, []byte(r.Body)) || r.Leg != "" && r.Leg != leg ||
			r.Path != path && (r.Path != "" || leg == question) {
			continue
		}
		found := *r
		if r.Count--; r.Count == 0 {
			f.rules = slices.Delete(f.rules, i, i+1)
		}
		return found, true
	}
	return Fault{}, false
}

func (f *faults) add(rule Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rule.Count = cmp.Or(rule.Count, 1)
	rule.After = cmp.Or(rule.After, 1)
	rule.Status = cmp.Or(rule.Status, 500)
	f.rules = append(f.rules, rule)
	f.armed.Store(true)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	f.duplicate = 0
	f.armed.Store(false)
	f.orca.Store(false)
	f.scrape.Store(0)
	f.late.Store(0)
}

// publish sends a batch on its way, or does with it what the faults say.
func (f *faults) publish(r *rank, b *kvevents.EncodeBatch) {
	pub := r.pub.Load()
	if pub == nil {
		return
	}
	if late := time.Duration(f.late.Load()); late > 0 {
		f.mu.Lock()
		queue := f.delayed
		f.mu.Unlock()
		select {
		case queue <- lateBatch{time.Now().Add(late), r, cloneBatch(b)}:
		default: // 4,096 batches late: the rest is lost, as it would be at a high-water mark
		}
		return
	}
	pub.Publish(b)
	f.mu.Lock()
	again := f.duplicate > 0
	if again {
		f.duplicate--
	}
	f.mu.Unlock()
	if again {
		pub.Publish(b)
	}
}

func cloneBatch(b *kvevents.EncodeBatch) *kvevents.EncodeBatch {
	c := *b
	c.Events = slices.Clone(b.Events)
	for i := range c.Events {
		e := &c.Events[i]
		e.Hashes = slices.Clone(e.Hashes)
		e.Tokens = slices.Clone(e.Tokens)
		e.Extra = slices.Clone(e.Extra)
	}
	return &c
}

// publishLate sends delayed batches in order when their time has come.
func (s *Server) publishLate(queue <-chan lateBatch) {
	for {
		select {
		case l := <-queue:
			sleep(s.ctx, time.Until(l.at))
			if p := l.rank.pub.Load(); p != nil {
				p.Publish(l.batch)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// ice is what stands still for a while. Safe for concurrent use.
type ice struct {
	on atomic.Bool // the hot path looks no further

	mu   sync.Mutex    // guards the following
	over chan struct{} // closed when it melts; nil: there is none
}

// form makes ice, and reports whether there was none.
func (i *ice) form() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over != nil {
		return false
	}
	i.over = make(chan struct{})
	i.on.Store(true)
	return true
}

func (i *ice) melt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over != nil {
		close(i.over)
		i.over = nil
		i.on.Store(false)
	}
}

// wait returns when there is none, or at stop or end.
func (i *ice) wait(stop, end <-chan struct{}) {
	if !i.on.Load() {
		return
	}
	i.mu.Lock()
	over := i.over
	i.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-stop:
	case <-end:
	}
}

// thaw waits while the server is frozen, or until stop.
func (s *Server) thaw(stop <-chan struct{}) { s.frozen.wait(stop, s.ctx.Done()) }

// thawCore waits while the engine is frozen, alone or with its server.
func (s *Server) thawCore(stop <-chan struct{}) {
	s.thaw(stop)
	s.stiff.wait(stop, s.ctx.Done())
}

func (s *Server) freeze(i *ice, d time.Duration) {
	if i.form() {
		s.later(d, i.melt)
	}
}

// later calls f after d, unless the server is closed before.
func (s *Server) later(d time.Duration, f func()) {
	s.spawn(func() {
		sleep(s.ctx, d)
		if s.ctx.Err() == nil {
			f()
		}
	})
}

// Fault makes the server misbehave as f says; see [Fault] for the kinds. Most kinds take effect before it
// returns.
func (s *Server) Fault(f Fault) error {
	switch f.Kind {
	case "fail", "stall", "cut_stream", "stall_stream", "fail_stream", "null_params", "miscount":
		s.faults.add(f)
	case "cut_path", "hold_path", "wrong_load":
		s.peers.paths.add(f)
	case "no_load":
		s.eachRank(func(r *rank) { r.setNoLoad(true) })
	case "mend_path":
		s.mendPath(f.From)
	case "freeze":
		s.freeze(&s.frozen, f.For)
	case "freeze_core":
		s.freeze(&s.stiff, f.For)
	case "slow_metrics":
		s.faults.scrape.Store(int64(f.For))
	case "slow":
		s.slow(cmp.Or(f.Factor, 1))
	case "refuse":
		s.refuse(f.For)
	case "accept":
		return s.revive()
	case "die":
		s.die(errors.New("killed by a fault"))
	case "restart":
		return s.restart(f.For)
	case "lease":
		s.eachRank(func(r *rank) { r.setLease(f.For) })
	case "swap_adapter":
		s.swapAdapter(f.Body, f.Path)
	case "no_orca":
		s.faults.orca.Store(true)
	case "clear":
		s.faults.clear()
		s.mendPath("")
		s.frozen.melt()
		s.stiff.melt()
		s.slow(1)
		s.eachPublisher((*kvevents.Publisher).Resume)
	default:
		return s.eventFault(f)
	}
	return nil
}

func (s *Server) eventFault(f Fault) error {
	if s.o.EventsEndpoint == "" {
		return fmt.Errorf("fault %q: no such kind, or there are no events", f.Kind)
	}
	switch f.Kind {
	case "drop_events":
		s.eachPublisher(func(p *kvevents.Publisher) { p.Drop(max(f.Count, 1)) })
	case "duplicate_events":
		s.faults.mu.Lock()
		s.faults.duplicate += max(f.Count, 1)
		s.faults.mu.Unlock()
	case "delay_events":
		s.delayEvents(f.For)
	case "pause_events":
		s.eachPublisher((*kvevents.Publisher).Pause)
		if f.For > 0 {
			s.later(f.For, func() { s.eachPublisher((*kvevents.Publisher).Resume) })
		}
	case "resume_events":
		s.eachPublisher((*kvevents.Publisher).Resume)
	case "restart_events":
		s.eachPublisher((*kvevents.Publisher).Restart)
	default:
		return fmt.Errorf("fault %q: no such kind", f.Kind)
	}
	return nil
}

func (s *Server) eachPublisher(do func(*kvevents.Publisher)) {
	s.eachRank(func(r *rank) {
		if p := r.pub.Load(); p != nil {
			do(p)
		}
	})
}

func (s *Server) delayEvents(d time.Duration) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if s.faults.delayed == nil {
		queue := make(chan lateBatch, 4096)
		s.faults.delayed = queue
		s.spawn(func() { s.publishLate(queue) })
	}
	s.faults.late.Store(int64(d))
}

func (s *Server) eachRank(do func(*rank)) {
	for _, r := range s.ranks {
		do(r)
	}
}

func (s *Server) slow(factor float64) {
	s.eachRank(func(r *rank) {
		c := s.o.Core.Cost
		c.Speed = cmp.Or(c.Speed, 1) / factor
		r.mu.Lock()
		r.core.SetCost(c)
		r.mu.Unlock()
	})
}

func (r *rank) setLease(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.SetLease(d)
}

// control serves POST /fault. It is a plain net/http handler: nothing measures it.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = json.Unmarshal(body, &f)
		}
		if err == nil {
			err = s.Fault(f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// Whoever asked may have left.
		_ = json.NewEncoder(w).Encode(map[string]any{
			"ranks": s.Stats(), "calls": s.Calls(), "admin_calls": s.AdminCalls(), "held_blocks": s.HeldBlocks(),
		})
	})
	return mux
}

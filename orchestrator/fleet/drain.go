package fleet

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// An operator drains a server before stopping it: the server gets no new request, and its running requests
// end. The file (drain: true) or a command starts draining. A command holds for the server's address, under
// any name. If the address leaves the file, the command holds for the new address of the name. If both have
// left, the command is over.

// Drained is a server that is drained on command.
type Drained struct {
	URL  string `json:"url"`
	Name string `json:"replica"` // the name in the configuration
}

// DrainStatus says how far the draining of a server has come.
type DrainStatus struct {
	Draining bool      // it gets no new requests
	Empty    bool      // and nothing runs there any more: it can be stopped
	Left     string    // what still has to end, for people; "" where Empty
	Since    time.Time // when it began
	ByFile   bool      // the file says drain: true, so that no command ends it
}

// drain is how far the draining of one server has come. Safe for concurrent use.
type drain struct {
	server *server
	facts  *facts
	states *states

	running atomic.Int64 // requests of this router, its own included, that need the engine now
	lent    atomic.Int64 // unix nanoseconds; until then a decode engine may read its blocks

	mu    sync.Mutex // guards the following
	since time.Time  // when it began, zero while it is in use
	idle  bool       // the look before found no request of this router there
	empty bool       // it stays so until it is in use again
	left  string
}

// begin notes at now that the server is drained, or that it is in use.
func (d *drain) begin(on bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since, d.left = time.Time{}, ""
	if on {
		d.since, d.left = now, "not looked at yet"
	}
	d.idle, d.empty = false, false
}

// status says how far the draining of the server has come.
func (d *drain) status() DrainStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.statusLocked()
}

func (d *drain) statusLocked() DrainStatus {
	set := d.server.set.Load()
	return DrainStatus{
		Draining: set.drain, Empty: set.drain && d.empty, Left: d.left, Since: d.since, ByFile: set.cfg.Drain,
	}
}

// judge checks whether a drained server is empty. m is the engine's newest report about itself, nil if
// there is none.
//
// The requests of this router must be over at two checks in a row, so that the engine's report is from after
// their end. The report also counts requests of others, such as another router, and requests that the engine
// still works on after their client has left.
func (d *drain) judge(m *engine.Metrics) {
	if !d.server.Draining() {
		return
	}
	now := time.Now()
	ours := d.leftOfOurs(now)
	left := ours
	if left == "" && m != nil {
		left = leftByReport(m)
	}
	d.mu.Lock()
	if left == "" && !d.idle {
		left = "waiting for the engine's next report"
	}
	d.idle = ours == ""
	news := left == "" && !d.empty && !d.since.IsZero()
	d.empty, d.left = d.empty || news, left
	if d.empty {
		d.left = ""
	}
	took := now.Sub(d.since)
	d.mu.Unlock()
	d.show()
	if news {
		of := d.server
		of.log.Info("replica is empty: stop it now", "replica", of.Name(), "pool", of.role.String(),
			"drained_for", took)
	}
}

// leftOfOurs says what this router has under way on the server, "" for nothing.
func (d *drain) leftOfOurs(now time.Time) string {
	booked := 0
	for _, m := range d.facts.members() {
		booked += d.server.pool.Booked(m.ID)
	}
	switch n, lent := max(int64(booked), d.running.Load()), time.Unix(0, d.lent.Load()); {
	case n > 0:
		return fmt.Sprintf("%d requests of this router", n)
	case now.Before(lent):
		return "a decode engine may read its KV blocks until " + lent.Format(time.TimeOnly)
	}
	return ""
}

// leftByReport says what the engine works on, "" for nothing.
func leftByReport(m *engine.Metrics) string {
	n := 0
	for _, load := range m.Loads {
		n += max(load.Running, 0) + max(load.Waiting, 0)
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("the engine reports %d requests, of others or of clients that have left", n)
}

// lentUntil notes that a decode engine may read blocks of the engine until t.
func (d *drain) lentUntil(t time.Time) {
	for n, was := t.UnixNano(), d.lent.Load(); n > was; was = d.lent.Load() {
		if d.lent.CompareAndSwap(was, n) {
			return
		}
	}
}

// show puts the present status of the drain into the states of the server's replicas.
func (d *drain) show() {
	d.mu.Lock() // the last call to get the lock shows the present status
	defer d.mu.Unlock()
	s := d.statusLocked()
	draining, drained := "", ""
	switch {
	case s.Empty:
		drained = "nothing runs there: it can be stopped"
	case s.Draining:
		draining = s.Left
	}
	for _, m := range d.facts.members() {
		d.states.put(m.ID, StateDraining, draining, time.Now())
		d.states.put(m.ID, StateDrained, drained, time.Now())
	}
}

// changed begins or ends the draining of a server after a change of its settings. was says whether the
// settings drained it before.
func (d *drain) changed(was bool) {
	of := d.server
	on := of.Draining()
	if on == was {
		return
	}
	d.begin(on, time.Now())
	d.show()
	if on {
		of.log.Info("replica is being drained", "replica", of.Name(), "pool", of.role.String())
		return
	}
	of.log.Info("replica is in use again", "replica", of.Name(), "pool", of.role.String())
}

// follow finds the server of d in wanted: by its address, or else by its name.
func follow(d Drained, wanted map[serverKey]*settings) (to Drained, found bool) {
	for _, key := range []serverKey{{replica.Prefill, d.URL}, {replica.Decode, d.URL}} {
		if s := wanted[key]; s != nil {
			return Drained{URL: d.URL, Name: s.id}, true
		}
	}
	for key, s := range wanted {
		if s.id == d.Name {
			return Drained{URL: key.url, Name: d.Name}, true
		}
	}
	return d, false
}

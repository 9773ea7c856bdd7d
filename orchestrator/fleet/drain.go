package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/config"
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
	text := "replica is in use again"
	if on {
		text = "replica is being drained"
	}
	of.log.Info(text, "replica", of.Name(), "pool", of.role.String())
}

// drainedByFile returns the URLs of the servers that cfg drains. For a server in both pools one mark is
// enough: its process is stopped as a whole.
func drainedByFile(cfg *config.Config) map[string]bool {
	urls := map[string]bool{}
	for _, r := range slices.Concat(cfg.Pools.Prefill.Replicas, cfg.Pools.Decode.Replicas) {
		if r.Drain {
			urls[r.URL] = true
		}
	}
	return urls
}

// Drains are the servers that are drained on command. Safe for concurrent use.
func (f *Fleet) Drains() []Drained { return *f.pub.drained.Load() }

// Find returns the watchers of the server with this name or URL: two for a server in both pools. The scheme
// of a URL may be left out. The error says what else to write.
func (f *Fleet) Find(name string) ([]*Watcher, error) {
	var found []*Watcher
	var names []string
	for _, w := range f.keep.all() {
		set := w.set.Load()
		_, address, _ := strings.Cut(w.key.url, "://")
		url := strings.TrimRight(name, "/")
		if name == set.cfg.ID() || name == set.name(w.role) || url == w.key.url || url == address {
			found = append(found, w)
		}
		if !slices.Contains(names, set.cfg.ID()) {
			names = append(names, set.cfg.ID())
		}
		if rank, is := strings.CutPrefix(name, w.Name()+"/dp"); is && rank != "" {
			return nil, fmt.Errorf("%s is one rank of %s, whose ranks stop together: name %s", name, w.Name(),
				set.cfg.ID())
		}
	}
	if len(found) > 0 {
		return f.sameServer(found), nil
	}
	const most = 20
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return nil, fmt.Errorf("no replica has the name or URL %q; there are %s", name,
		strings.Join(names, ", "))
}

// sameServer adds the watcher of the other pool for servers that are in both pools.
func (f *Fleet) sameServer(some []*Watcher) []*Watcher {
	for _, w := range f.keep.all() {
		same := func(o *Watcher) bool { return o.key.url == w.key.url }
		if slices.ContainsFunc(some, same) && !slices.Contains(some, w) {
			some = append(some, w)
		}
	}
	return some
}

// SetDrained begins or ends draining the server of ws, which [Fleet.Find] found. When it returns, no plan
// uses a drained server any more. A drain: true in the file stays in force in any case. Only one call may
// run at a time, and none beside [Fleet.Apply].
func (f *Fleet) SetDrained(ws []*Watcher, on bool) {
	drains := slices.Clone(f.Drains())
	for _, w := range ws {
		drains = slices.DeleteFunc(drains, func(d Drained) bool { return d.URL == w.key.url })
		if on {
			drains = append(drains, Drained{URL: w.key.url, Name: w.set.Load().cfg.ID()})
		}
	}
	f.pub.drained.Store(&drains)
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	for _, w := range ws {
		was := w.set.Load()
		now := *was
		now.drain = on || was.cfg.Drain
		w.set.Store(&now)
		w.facts.remake()
		w.drain.changed(was.drain)
		w.life.wake()
	}
	f.publishLocked()
}

// RestoreDrains drains the servers again that an earlier process has drained. It returns the drains of
// servers that are not watched. It may not run beside [Fleet.Apply] or [Fleet.SetDrained].
func (f *Fleet) RestoreDrains(drains []Drained) (away []Drained) {
	for _, d := range drains {
		all := f.keep.all()
		at := slices.IndexFunc(all, func(w *Watcher) bool {
			return w.key.url == d.URL || w.set.Load().cfg.ID() == d.Name && !f.has(d.URL)
		})
		if at < 0 {
			away = append(away, d)
			continue
		}
		f.SetDrained(f.sameServer(all[at:at+1:at+1]), true)
	}
	return away
}

func (f *Fleet) has(url string) bool {
	return slices.ContainsFunc(f.keep.all(), func(w *Watcher) bool { return w.key.url == url })
}

// carryDrains marks the servers that are drained on command in the settings of a new configuration, and
// returns the drains that stay. A server that has left the configuration is not drained any more.
func (f *Fleet) carryDrains(wanted map[serverKey]*settings) (carried []Drained) {
	for _, d := range f.Drains() {
		to, stays := follow(d, wanted)
		if !stays || slices.Contains(carried, to) {
			continue
		}
		carried = append(carried, to)
		for key, s := range wanted {
			s.drain = s.drain || key.url == to.URL
		}
	}
	return carried
}

// follow finds the server of d in wanted: by its address, or else by its name.
func follow(d Drained, wanted map[serverKey]*settings) (to Drained, found bool) {
	for _, key := range []serverKey{{replica.Prefill, d.URL}, {replica.Decode, d.URL}} {
		if s := wanted[key]; s != nil {
			return Drained{URL: d.URL, Name: s.cfg.ID()}, true
		}
	}
	for key, s := range wanted {
		if s.cfg.ID() == d.Name {
			return Drained{URL: key.url, Name: d.Name}, true
		}
	}
	return d, false
}

package answers

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// Fleet tells which engines there are.
type Fleet interface {
	Endpoints() map[replica.ID]*fleet.Endpoint
	Endpoint(id replica.ID) *fleet.Endpoint // nil: there is none of this name
	DistrustChanges() uint64                // see [fleet.Fleet.DistrustChanges]
}

// Reasons why an answer is not kept.
const (
	tooLong     = "too_large"
	notFinished = "unfinished" // aborted, or ended for a reason that the router does not know
	wasResumed  = "continued"  // two engines took part
	notTrusted  = "distrusted" // an engine that took part is ejected, or may have cached wrong blocks
	unknownFrom = "unknown_engine"
)

// modelIdentity is the model whose answers a client gets under a name. All replicas that serve the model must
// have it from the same place in the same version and revision, with the same tokenizer. Otherwise, as in a
// rolling upgrade, the model whose answer a client would get is not known.
func modelIdentity(of Fleet, name string) (m answercache.Model, why string) {
	found := false
	var known replica.Release
	for _, e := range of.Endpoints() {
		if !e.Member.Serves(name) {
			continue
		}
		facts, release := &e.Member.Facts, e.Member.Release()
		is := answercache.Model{
			Name: name, Root: facts.Root, Version: facts.Version, Adapter: facts.AdapterRoots[name],
		}
		switch {
		case is.Root == "" || e.Member.Adapter(name) != "" && is.Adapter == "":
			return m, unknownModel
		case found && (is != m || release.Revision != known.Revision || !release.Agrees(known)):
			return m, mixedModels
		}
		if known.Sample == 0 {
			known = release
		}
		m, found = is, true
	}
	if !found {
		return m, unknownModel
	}
	return m, ""
}

// allLive reports whether all processes that took part in an answer still live and are trusted. Engines do
// not report the revision of a model. A restarted engine may have another revision from the same place.
func allLive(of Fleet, makers []answercache.Maker) bool {
	for _, m := range makers {
		e := of.Endpoint(replica.ID(m.Replica))
		if e == nil || !e.Up() || e.CacheEpoch() > 0 || makerOf(e) != m {
			return false
		}
	}
	return len(makers) > 0
}

// hadAdapter reports whether the makers of an answer that still live have had the requested adapter from the
// same path since its computation began. A router hears late of an exchange of adapters. Without this check
// an answer of one adapter could be kept under the name of the other.
func hadAdapter(of Fleet, makers []answercache.Maker, model string, began time.Time) bool {
	for _, m := range makers {
		if e := of.Endpoint(replica.ID(m.Replica)); e != nil && !hadAdapterAt(e, model, began) {
			return false
		}
	}
	return true
}

// hadAdapterAt reports whether a replica that has model as an adapter has had it from the same path since
// before began.
func hadAdapterAt(e *fleet.Endpoint, model string, began time.Time) bool {
	if e.Member.Adapter(model) == "" {
		return true
	}
	since, ok := e.AdapterSince(model)
	return ok && since.Before(began)
}

// beginning is the state of the fleet when a computation began.
type beginning struct {
	at        time.Time
	distrusts uint64
	endpoints map[replica.ID]*fleet.Endpoint
}

// beginningOf is the state of the fleet now.
func beginningOf(f Fleet) beginning {
	return beginning{at: time.Now(), distrusts: f.DistrustChanges(), endpoints: f.Endpoints()}
}

// sameSince reports whether a request for model may join a computation that began so: would its answer be as
// right if it were computed now? The replicas that will make the answer are not known yet. So every replica
// that served the model must be the same process with the same adapter. outlive lets processes end.
func (b *beginning) sameSince(of Fleet, model string, outlive bool) bool {
	if of.DistrustChanges() != b.distrusts { // an engine may have read wrong blocks since
		return false
	}
	for id, was := range b.endpoints {
		if !was.Member.Serves(model) {
			continue
		}
		is := of.Endpoint(id)
		gone := is == nil || makerOf(is) != makerOf(was)
		if gone && !outlive || !gone && !hadAdapterAt(is, model, b.at) {
			return false
		}
	}
	return true
}

// makers returns the processes that made the answer with this record. Each must have lived when the
// computation began and must live now. why is the reason if the processes are unknown.
func (b *beginning) makers(of Fleet, rec *observe.Record) (list []answercache.Maker, why string) {
	if rec == nil || rec.Decode == "" {
		return nil, unknownFrom
	}
	if len(rec.Continued) > 0 {
		return nil, wasResumed
	}
	for _, name := range []string{rec.Decode, rec.Prefill} {
		if name == "" {
			continue
		}
		id := replica.ID(name)
		e, before := of.Endpoint(id), b.endpoints[id]
		switch {
		case e == nil || before == nil || makerOf(e) != makerOf(before) || e.Member.Facts.Started == 0:
			return nil, unknownFrom
		case e.CacheEpoch() > 0 || slices.ContainsFunc(e.States(id), ejected):
			return nil, notTrusted
		}
		list = append(list, makerOf(e))
	}
	return list, ""
}

// makerOf names the process behind an endpoint.
func makerOf(e *fleet.Endpoint) answercache.Maker {
	return answercache.Maker{
		Replica: string(e.Member.ID), Server: e.Server(), Started: e.Member.Facts.Started,
	}
}

// ejected reports whether a state says that a replica fails requests.
func ejected(s fleet.State) bool {
	switch s.State {
	case fleet.EjectedState(outlier.Prefill), fleet.EjectedState(outlier.Decode),
		fleet.EjectedState(outlier.Whole), fleet.StateDistrusted:
		return true
	}
	return false
}

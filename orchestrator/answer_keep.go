package orchestrator

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// Reasons why a request is not for the answer cache, beside those of [openai.Request.Repeatable].
const (
	byClient     = "no_store"
	hasQuery     = "query"
	mixedModels  = "mixed_models" // replicas that serve the model have other files or versions of it
	unknownModel = "unknown_model"
)

// Reasons why an answer is not kept.
const (
	tooLong     = "too_large"
	notFinished = "unfinished" // aborted, or ended by what we do not know
	wasResumed  = "continued"  // two engines took part
	notTrusted  = "distrusted" // an engine that took part is ejected, or may have cached wrong blocks
	unknownFrom = "unknown_engine"
)

func bypassReasons() []string {
	return []string{
		byClient, hasQuery, mixedModels, unknownModel,
		openai.NotSame, openai.SeveralAsked, openai.ToolsAsked, openai.MediaAsked, openai.StoreAsked,
		openai.UnknownMember,
	}
}

// question is what the request asks. why says why it is not for the cache.
func (a *cacheRequest) question() (answercache.Question, string) {
	none := answercache.Question{}
	switch {
	case a.wish.off:
		return none, byClient
	case a.q.r.URL.RawQuery != "":
		return none, hasQuery
	}
	canonical, why := a.what.Repeatable(openai.Repeat{Seeded: a.cfg.Seeded, Outlives: a.cfg.OutliveEngines})
	if why != "" {
		return none, why
	}
	model, why := a.q.o.modelIdentity(a.model)
	if why != "" {
		return none, why
	}
	return answercache.Question{
		Surface: a.q.path, Tenant: tenant(a.q.r.Header), Model: model, Request: canonical,
	}, ""
}

// modelIdentity is whose answers a model's are: all replicas that serve it have it from the same place, in
// the same version. While that is not so, as in a rolling upgrade, nobody knows whose answer a client would
// get.
func (o *Orchestrator) modelIdentity(name string) (m answercache.Model, why string) {
	found := false
	for _, e := range o.fleet.Endpoints() {
		if !e.Member.Serves(name) {
			continue
		}
		facts := &e.Member.Facts
		is := answercache.Model{
			Name: name, Root: facts.Root, Version: facts.Version, Adapter: facts.AdapterRoots[name],
		}
		switch {
		case is.Root == "" || e.Member.Adapter(name) != "" && is.Adapter == "":
			return m, unknownModel
		case found && is != m:
			return m, mixedModels
		}
		m, found = is, true
	}
	if !found {
		return m, unknownModel
	}
	return m, ""
}

// stand reports whether all processes that took part in an answer are there still, and trusted: engines do
// not tell the revision of a model, and one that was started again may have another from the same place.
func (o *Orchestrator) stand(makers []answercache.Maker) bool {
	for _, m := range makers {
		e := o.fleet.Endpoint(replica.ID(m.Replica))
		if e == nil || !e.Up() || e.CacheEpoch() > 0 || makerOf(e) != m {
			return false
		}
	}
	return len(makers) > 0
}

// hadAdapter reports whether those that made an answer, as far as they are there, have had the adapter that
// was asked for from the same path ever since its computation began. A router hears of an exchange late, so
// that an answer of the one may be kept under the name of the other.
func (o *Orchestrator) hadAdapter(makers []answercache.Maker, model string, began time.Time) bool {
	for _, m := range makers {
		if e := o.fleet.Endpoint(replica.ID(m.Replica)); e != nil && !hadAdapterAt(e, model, began) {
			return false
		}
	}
	return true
}

// hadAdapterAt reports whether a replica that has model for an adapter has had it from the same path since
// before began.
func hadAdapterAt(e *fleet.Endpoint, model string, began time.Time) bool {
	if e.Member.Adapter(model) == "" {
		return true
	}
	since, ok := e.AdapterSince(model)
	return ok && since.Before(began)
}

// beginning is what there was when a computation began.
type beginning struct {
	at        time.Time
	distrusts uint64 // see [fleet.Fleet.DistrustChanges]
	endpoints map[replica.ID]*fleet.Endpoint
}

func (o *Orchestrator) beginning() beginning {
	return beginning{at: time.Now(), distrusts: o.fleet.DistrustChanges(), endpoints: o.fleet.Endpoints()}
}

// sameSince reports whether a computation that began so may be joined: its answer would be as right if it
// were computed now. Which replicas will have made the answer is not known yet, so all that served the model
// are asked: the same process has to be there, with the same adapter.
func (a *cacheRequest) sameSince(began any) bool {
	b := began.(beginning)                            //nolint:forcetypeassert // all flights get one
	if a.q.o.fleet.DistrustChanges() != b.distrusts { // an engine may have read wrong blocks since
		return false
	}
	for id, was := range b.endpoints {
		if !was.Member.Serves(a.model) {
			continue
		}
		is := a.q.o.fleet.Endpoint(id)
		gone := is == nil || makerOf(is) != makerOf(was)
		if gone && !a.cfg.OutliveEngines || !gone && !hadAdapterAt(is, a.model, b.at) {
			return false
		}
	}
	return true
}

// makerOf names the process behind an endpoint.
func makerOf(e *fleet.Endpoint) answercache.Maker {
	return answercache.Maker{
		Replica: string(e.Member.ID), Server: e.Server(), Started: e.Member.Facts.Started,
	}
}

// keep stores the answer of a computation that went well, where it may be given to others.
func (c *answers) keep(a *cacheRequest, q *request, began beginning) {
	if why := c.store(a, q, began); why != "" {
		c.o.m.Answers.Unkept.WithLabelValues(why).Inc()
	}
}

func (c *answers) store(a *cacheRequest, q *request, began beginning) (why string) {
	head, body, ok := a.flight.Whole()
	switch {
	case !ok || len(body) > int(a.cfg.AnswerBytes):
		return tooLong
	case head.Status != http.StatusOK || !a.what.Finished(body):
		return notFinished
	}
	if is, _ := c.o.modelIdentity(a.model); is != a.of { // it has become another while this was computed
		return unknownFrom
	}
	makers, why := c.o.makers(q.outcome.rec, began.endpoints)
	if why != "" {
		return why
	}
	if !c.o.hadAdapter(makers, a.model, began.at) {
		return unknownFrom
	}
	now := time.Now()
	kept := &answercache.Answer{
		Made: began.at, Stream: head.Stream, Body: bytes.Clone(body), Makers: makers,
	}
	if types := head.Header["Content-Type"]; len(types) > 0 {
		kept.ContentType = types[0]
	}
	if kept.Stream {
		kept.Events = bytes.Count(body, blankLine)
	}
	c.memory.Put(a.key, kept, now.Add(a.cfg.TTL))
	if c.shared != nil {
		c.shared.Put(a.key, kept, a.cfg.TTL)
	}
	return ""
}

// makers are the processes that made the answer that rec tells of: those that were there when it began, and
// are there now.
func (o *Orchestrator) makers(
	rec *observe.Record, began map[replica.ID]*fleet.Endpoint,
) (list []answercache.Maker, why string) {
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
		e, before := o.fleet.Endpoint(id), began[id]
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

// ejected reports whether a state says that a replica fails requests.
func ejected(s fleet.State) bool {
	switch s.State {
	case fleet.EjectedState(outlier.Prefill), fleet.EjectedState(outlier.Decode),
		fleet.EjectedState(outlier.Whole), fleet.StateDistrusted:
		return true
	}
	return false
}

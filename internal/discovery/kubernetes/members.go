package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
)

// found collects the members of one pool.
type found struct {
	config.Members

	left []string // pods with the labels of the pool that cannot be used, and why
}

// members turns pods into the replicas of both pools. A pod joins when it is ready. A member that is being
// deleted or is not ready any more gets no new requests. It leaves when its pod has ended or has gone, so
// that the router forgets nothing in a short pause. was has the uids of the members of the last call;
// is has the uids of the present members.
//
// Three rules keep requests served. Of two pods with one address, the ready pod has the address: the other
// pod is left over from a lost node. If both are ready, the older pod has the address, because it serves
// already. While no member of a pool is ready, its members stay in use: the API server marks all pods as not
// ready when it does not hear from their nodes, and the router asks the engines itself. Members that a new
// selector of the InferencePool leaves out stay until the selector has found a ready pod of their pool,
// because a selector may be wrong.
func (s *spec) members(pods []*pod, was map[string]bool) (all []found, is map[string]bool) {
	is = map[string]bool{}
	prefill, decode := s.sides()
	note := func(p *pod, a, b []*config.Replica) {
		two(a, b)
		if len(a)+len(b) > 0 {
			is[p.uid] = true
		}
	}
	var former []*pod
	for _, p := range slices.SortedFunc(slices.Values(pods), readyFirst) {
		switch {
		case p.ended:
		case s.matches(p.labels):
			joins := p.ip != "" && (was[p.uid] || p.ready && !p.deleting)
			note(p, prefill.take(p, joins), decode.take(p, joins))
		case was[p.uid] && s.former[p.uid] && p.ip != "":
			former = append(former, p)
		}
	}
	prefill.waits, decode.waits = !prefill.inUse(), !decode.inUse()
	for _, p := range former {
		note(p, prefill.keep(p), decode.keep(p))
	}
	keepInUse(prefill, decode)
	for _, of := range []*side{prefill, decode} {
		if of.asked() {
			all = append(all, of.found())
		}
	}
	return all, is
}

// readyFirst sorts ready pods before others, and old pods before new ones.
func readyFirst(a, b *pod) int {
	return cmp.Or(cmp.Compare(a.unused(), b.unused()), a.created.Compare(b.created), cmp.Compare(a.name, b.name))
}

// unused is 1 if the pod gets no new requests, else 0.
func (p *pod) unused() int {
	if p.ready && !p.deleting {
		return 0
	}
	return 1
}

// side is one pool while its members are gathered.
type side struct {
	*spec

	pool     *poolSpec
	name     string
	matched  bool // some pod has the labels of the pool
	joined   bool // and some joins
	waits    bool // no pod that is selected now is in use, so former members stay
	kept     bool // and some do
	replicas []*config.Replica
	left     []string
	owners   map[string]*pod // by URL, of both sides
}

func (s *spec) sides() (prefill, decode *side) {
	owners := map[string]*pod{}
	return &side{spec: s, pool: &s.prefill, name: config.PoolPrefill, owners: owners},
		&side{spec: s, pool: &s.decode, name: config.PoolDecode, owners: owners}
}

// keepInUse lets requests go to the members of a pool that has no ready member. It marks both replicas of a
// pod in both pools, because one mark drains the whole engine.
func keepInUse(prefill, decode *side) {
	keep := map[string]bool{}
	for _, of := range []*side{prefill, decode} {
		if of.inUse() {
			continue
		}
		before := len(keep)
		for _, r := range of.replicas {
			if !of.owners[r.URL].deleting {
				keep[r.URL] = true
			}
		}
		if len(keep) > before {
			of.left = append(of.left, fmt.Sprintf("no pod of the %s pool is Ready: its members stay in use while "+
				"their engines answer; see kubectl describe pods", of.name))
		}
	}
	for _, r := range slices.Concat(prefill.replicas, decode.replicas) {
		r.Drain = r.Drain && !keep[r.URL]
	}
}

// inUse reports whether some replica gets new requests.
func (of *side) inUse() bool {
	return slices.ContainsFunc(of.replicas, func(r *config.Replica) bool { return !r.Drain })
}

// asked reports whether the pool is to have pods.
func (of *side) asked() bool { return len(of.pool.any) > 0 }

// take adds p if p belongs to the pool and joins, and returns the replicas of p, one for each rank.
func (of *side) take(p *pod, joins bool) (taken []*config.Replica) {
	if !of.pool.matches(p.labels) {
		return nil
	}
	of.matched = true
	if !joins {
		return nil
	}
	of.joined = true
	return of.add(p)
}

// keep adds p, a member that is not selected any more, while its pool waits for a selected pod.
func (of *side) keep(p *pod) (kept []*config.Replica) {
	if !of.waits || !of.pool.matches(p.labels) {
		return nil
	}
	of.kept = true
	return of.add(p)
}

// add adds the replicas of p, one for each rank, and returns them.
func (of *side) add(p *pod) (added []*config.Replica) {
	ranks, err := p.ranksOf(of.pool)
	if err != nil {
		of.tell(p, "%v", err)
	}
	for _, at := range ranks {
		r := of.replica(p, at)
		if owner := of.owners[r.URL]; owner != nil && owner != p {
			of.tell(p, "pod %s has its address %s; delete the pod that does not run any more", owner.name, r.URL)
			continue
		}
		of.owners[r.URL] = p
		added = append(added, r)
	}
	of.replicas = append(of.replicas, added...)
	return added
}

// tell notes what people should look at in a pod.
func (of *side) tell(p *pod, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	of.left = append(of.left, fmt.Sprintf("pod %s of the %s pool: %s", p.name, of.name, why))
}

// found is what was gathered.
func (of *side) found() found {
	f := found{Members: of.question(), left: of.left}
	switch {
	case !of.matched:
		asked, fix := f.Name, "set discovery.kubernetes."+of.name+".selector"
		if of.within != nil {
			asked += ", which selects " + of.within.selector.String()
			fix += " or spec.selector of the InferencePool"
		}
		f.left = append(f.left, fmt.Sprintf("no pod matches %s: %s to labels that kubectl get pods "+
			"--show-labels shows", asked, fix))
	case !of.joined:
		f.left = append(f.left, fmt.Sprintf("no pod of the %s pool is Ready yet; see kubectl describe pods",
			of.name))
	}
	if of.kept {
		f.left = append(f.left, fmt.Sprintf("the pods of the %s pool that the InferencePool selected before stay "+
			"in use until a pod that it selects now is Ready", of.name))
	}
	for _, r := range of.replicas {
		f.Replicas = append(f.Replicas, *r)
	}
	slices.SortFunc(f.Replicas, func(a, b config.Replica) int { return cmp.Compare(a.ID(), b.ID()) })
	return f
}

// question is what is asked for the pool, without an answer.
func (of *side) question() config.Members {
	var alternatives []string
	for _, one := range of.pool.any {
		more, _ := one.Requirements()
		alternatives = append(alternatives, of.all.Add(more...).String())
	}
	name := cmp.Or(of.namespace, "unknown namespace") + ": " + strings.Join(alternatives, " or ")
	if of.inferencePool != "" {
		name += " in InferencePool " + of.inferencePool
	}
	return config.Members{Source: "kubernetes", Name: name, Pool: of.name}
}

// two marks the replicas of a pod that is in both pools: one engine, or an engine for each pool.
func two(prefill, decode []*config.Replica) {
	byURL := map[string]*config.Replica{}
	for _, p := range prefill {
		byURL[p.URL] = p
	}
	for _, d := range decode {
		if p := byURL[d.URL]; p != nil {
			p.Shared, d.Shared = true, true
		} else if len(prefill) > 0 {
			d.Name = ""
		}
	}
	for _, p := range prefill {
		if !p.Shared && len(decode) > 0 {
			p.Name = ""
		}
	}
}

func (of *side) replica(p *pod, at rank) *config.Replica {
	host := p.ip
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	r := &config.Replica{
		Name: p.name + at.suffix, Drain: p.deleting || !p.ready,
		URL:    of.scheme + "://" + host + ":" + strconv.Itoa(at.port),
		Place:  config.Place{Host: p.node, Rack: p.place.Rack, Zone: p.place.Zone},
		Events: of.pool.events.OfRank(at.number).At(host), Revision: p.labels[of.revision],
		GatewayPort: of.pool.target(at.number),
	}
	if slice := p.labels[of.slice]; slice != "" && r.Place.Rack == "" {
		r.Place.Rack = p.labels[setName] + "/" + slice
	}
	if len(r.Name) > longestName {
		r.Name = "" // then the address is the name
	}
	return r
}

// longestName is what the configuration takes; Kubernetes takes names of up to 253 characters.
const longestName = 128

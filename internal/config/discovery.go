package config

import (
	"fmt"
	"slices"
)

// Discovery is the sources of replicas and other routers besides the file. All sources serve together.
type Discovery struct {
	DNS        DNS        `yaml:"dns"`
	Kubernetes Kubernetes `yaml:"kubernetes"`
}

// DNS finds members by the addresses of names. A name that begins with "_" is asked for SRV records, which
// bring the ports; any other name is asked for A records, or AAAA records where it has no A record.
type DNS struct {
	Prefill []Replica `yaml:"prefill"` // each stands for one replica at each address of its URL's host
	Decode  []Replica `yaml:"decode"`
	Routers []string  `yaml:"routers"` // as routers.peers, for one router at each address
	Servers []string  `yaml:"servers"` // host:port of DNS servers; empty: the servers in /etc/resolv.conf
}

// For reports whether a source may find members of pool, one of the values of [Members.Pool].
func (d *Discovery) For(pool string) bool {
	k := &d.Kubernetes
	switch pool {
	case PoolPrefill:
		return len(d.DNS.Prefill) > 0 || k.Preset != "" || k.Prefill.Selector != ""
	case PoolDecode:
		return len(d.DNS.Decode) > 0 || k.Preset != "" || k.Decode.Selector != ""
	}
	return len(d.DNS.Routers) > 0
}

// What [Members.Pool] may be.
const (
	PoolPrefill = "prefill"
	PoolDecode  = "decode"
	Peers       = "routers" // no pool: other routers
)

// Former is the [Members.Source] of members that were in force, and whose question has no answer.
const Former = "former"

// Members are what a source beside the file has found for one question, such as a DNS name.
type Members struct {
	Source   string    // "dns"
	Name     string    // the question: a DNS name, a selector; unique together with Source and Pool
	Pool     string    // PoolPrefill, PoolDecode or Peers
	Replicas []Replica // of other routers only the URLs count
}

// With returns c with the found members behind its own; c stays unchanged. Earlier members win. A replica
// that is in its pool already is left out in silence if the file or the same source has it; for two sources,
// left says so once for each pair of questions. A replica that contradicts an earlier member is left out, and
// left has the reason. A replica whose name is taken or invalid goes by host:port. The result is as valid
// as c.
func (c *Config) With(found ...Members) (joined *Config, left Problems) {
	n := *c
	n.Pools.Prefill.Replicas = slices.Clone(c.Pools.Prefill.Replicas)
	n.Pools.Decode.Replicas = slices.Clone(c.Pools.Decode.Replicas)
	n.Routers.Peers = slices.Clone(c.Routers.Peers)
	count := len(n.Pools.Prefill.Replicas) + len(n.Pools.Decode.Replicas)
	for _, m := range found {
		count += len(m.Replicas)
	}
	known := newFleet(count, &c.Connector)
	known.addPools(&checker{}, c.Pools)
	for _, m := range found {
		question, field := m.question(), "discovery."+m.Source+": "+m.Name+": "
		for _, r := range m.Replicas {
			is := newMember("pools."+m.Pool, field+r.ID(), r)
			is.question = question
			switch m.Pool {
			case PoolPrefill:
				left = left.with(known.join(is, &n.Pools.Prefill))
			case PoolDecode:
				left = left.with(known.join(is, &n.Pools.Decode))
			case Peers:
				left = left.with(n.Routers.join(field+r.ID(), r.URL))
			}
		}
	}
	n.Pools.unshare()
	return &n, left
}

// join adds m to p, or says why it cannot.
func (f *fleet) join(m *member, p *Pool) Problems {
	if twin := f.twin(m); twin != nil {
		return twin.alsoFoundBy(m.question)
	}
	problems := f.fits(m)
	if len(problems) > 0 && m.Name != "" {
		m.Name = ""
		problems = f.fits(m)
	}
	if len(problems) == 0 {
		f.note(m)
		p.Replicas = append(p.Replicas, m.Replica)
	}
	return problems
}

// fits says what keeps m from standing in its pool, and which entry of the file to change.
func (f *fleet) fits(m *member) Problems {
	var ck checker
	if m.check(&ck, m.field); len(ck.problems) == 0 {
		f.contradictions(&ck, m)
	}
	return ck.problems
}

// twin returns the member of m's pool with m's URL, nil for none.
func (f *fleet) twin(m *member) *member {
	switch first, known := f.urls[m.url]; {
	case !known:
		return nil
	case first.pool == m.pool:
		return first
	}
	same := func(o *member) bool { return o.pool == m.pool && o.url == m.url }
	if at := slices.IndexFunc(f.members, same); at >= 0 {
		return f.members[at]
	}
	return nil
}

// alsoFoundBy says that another question finds m, too.
func (m *member) alsoFoundBy(question string) Problems {
	if m.question == question || m.question == "" || question == "" {
		return nil
	}
	return Problems{{
		Field:   question,
		Message: "finds replicas that " + m.question + " finds, too, and their settings are those of the latter",
		Fix:     "take one of the two out of the file",
	}}
}

// question is the field for the question that found m, with the question; "" for members of before.
func (m *Members) question() string {
	if m.Source == Former {
		return ""
	}
	return fmt.Sprintf("discovery.%s: %s", m.Source, m.Name)
}

// with returns ps and each problem of more that ps does not have.
func (ps Problems) with(more Problems) Problems {
	for _, one := range more {
		if !slices.Contains(ps, one) {
			ps = append(ps, one)
		}
	}
	return ps
}

// join adds a router, unless the router is there already. The result says why the router cannot be asked.
func (r *Routers) join(field, url string) Problems {
	var ck checker
	if ck.router(field, url); len(ck.problems) > 0 {
		return ck.problems
	}
	same := func(o string) bool { return canonical(o) == canonical(url) }
	if !slices.ContainsFunc(r.Peers, same) {
		r.Peers = append(r.Peers, url)
	}
	return nil
}

// unshare removes Shared from replicas whose twin in the other pool was left out.
func (p *Pools) unshare() {
	urls := func(rs []Replica) map[string]bool {
		all := map[string]bool{}
		for _, r := range rs {
			if r.Shared {
				all[canonical(r.URL)] = true
			}
		}
		return all
	}
	prefill, decode := urls(p.Prefill.Replicas), urls(p.Decode.Replicas)
	for i := range p.Prefill.Replicas {
		r := &p.Prefill.Replicas[i]
		r.Shared = r.Shared && decode[canonical(r.URL)]
	}
	for i := range p.Decode.Replicas {
		r := &p.Decode.Replicas[i]
		r.Shared = r.Shared && prefill[canonical(r.URL)]
	}
}

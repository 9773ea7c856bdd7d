package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// rank is one data-parallel rank of a server. It has its own cache and its own event stream.
type rank struct {
	s    *server
	n    int
	told *told // the engine's description of its stream; nil: none
	// The addresses at which Tandem would listen, from the configuration or from the engine; no Endpoint: none.
	source kvevents.Source
	own    bool // source is from the configuration

	link  *link // nil: not tried
	trial *trial
}

// name returns the server's name, with the rank if the server has several.
func (r *rank) name() string {
	if len(r.s.ranks) < 2 {
		return r.s.name
	}
	return fmt.Sprintf("%s/dp%d", r.s.name, r.n)
}

// look follows the rank's events as a router does: it asks for a replay, and continues to listen.
func (r *rank) look(ctx context.Context) {
	if r.source.Endpoint == "" {
		return
	}
	r.s.fleet.say(r.name(), "following its events at %s", r.source.Endpoint)
	source := r.source
	source.Only = len(r.s.ranks) == 1
	r.link = openLink(ctx, source, r.s.fleet)
	r.link.join(ctx)
}

// judge goes through the table for one rank, with the facts of its server.
func (r *rank) judge(ofServer map[string]Finding) []Finding {
	known := maps.Clone(ofServer)
	var all []Finding
	for _, c := range table() {
		if c.rank != nil {
			known[c.id] = c.find(r.name(), known, r.s.fleet.passive, func() verdict { return c.rank(r) })
			all = append(all, known[c.id])
		}
	}
	return all
}

// trouble finds a trouble by name among the troubles that the router would report when the rank joins.
func (r *rank) trouble(name string) (setup.Trouble, bool) {
	self := r.replica()
	all := setup.Alone(&self, setup.Wanted{
		Split: r.s.splits(), KV: wanted(r.s), Events: r.s.follows(),
	})
	at := slices.IndexFunc(all, func(t setup.Trouble) bool { return t.Name == name })
	if at < 0 {
		return setup.Trouble{}, false
	}
	return all[at], true
}

// replica returns the rank as the router would know it.
func (r *rank) replica() replica.Replica {
	seen := &r.s.seen
	cache := seen.series.scrape.Ranks[r.n].Cache
	return replica.Replica{
		ID: replica.ID(r.s.name), Role: r.s.role, URL: r.s.url, Host: r.s.host, Rank: r.n,
		Facts: replica.Facts{
			Model: seen.model.ID, Root: seen.model.Root, Version: seen.version,
			BlockSize: r.blockSize(), Blocks: cache.Blocks, CacheDType: cache.DType,
			PrefixCaching: cache.PrefixCaching,
			Connector:     seen.series.scrape.Connector, FirstConnector: seen.series.scrape.First,
			Tokens: seen.tokens.Hashes(),
			Events: replica.EventSource{
				Endpoint: r.source.Endpoint, Replay: r.source.Replay, Topic: r.source.Topic,
			},
		},
	}
}

// oneBlock reports whether the test prompt has a full block, as far as is known.
func (r *rank) oneBlock() bool {
	size := r.s.seen.series.scrape.Ranks[r.n].Cache.BlockSize
	if r.trial.size > 0 {
		size = r.trial.size
	}
	return size > 0 && len(r.trial.prompt) > size
}

// blockSize returns the rank's block size by its events, otherwise by /metrics; 0: unknown.
func (r *rank) blockSize() int {
	if seen := r.sizesSeen(); len(seen) == 1 {
		return seen[0]
	}
	return r.s.seen.series.scrape.Ranks[r.n].Cache.BlockSize
}

// sizesSeen returns the block sizes in events, or only those of the test prompt if it was announced.
func (r *rank) sizesSeen() []int {
	if r.trial != nil && r.trial.size > 0 {
		return []int{r.trial.size}
	}
	return r.link.sizes()
}

// drafts returns how many tokens the engine has drafted for each sequence and step; 0 for none so far.
func (r *rank) drafts() int { return r.s.seen.series.scrape.Loads[r.n].Drafts }

// place returns where the rank is; two ranks at one address share a host.
func (r *rank) place() replica.Place {
	p := replica.Place(r.s.cfg.Place)
	p.Host = cmp.Or(p.Host, r.s.host)
	return p
}

// engine returns the limits for a prompt of the rank.
func (r *rank) engine() canary.Engine {
	return canary.Engine{
		Model: r.s.seen.model.ID, BlockSize: r.blockSize(), MaxModelLen: r.s.seen.model.MaxModelLen,
	}
}

// fits reports whether Tandem would form the pair, as far as known.
func (r *rank) fits(d *rank) bool {
	alike := func(a, b string) bool { return a == "" || b == "" || a == b }
	a, b := r.s.seen, d.s.seen
	return r.s.url != d.s.url && a.model.ID == b.model.ID &&
		alike(a.model.Root, b.model.Root) && alike(a.version, b.version) &&
		alike(number(r.blockSize()), number(d.blockSize())) &&
		alike(a.series.scrape.Ranks[r.n].Cache.DType, b.series.scrape.Ranks[d.n].Cache.DType)
}

// topics returns the topics of the received batches, live or replayed. For a quiet engine it is the topic
// that the engine reports.
func (r *rank) topics() (seen []string, told bool) {
	if len(r.link.heard.topics) == 0 && r.told != nil {
		return []string{r.told.Topic}, true
	}
	return r.link.heard.topics, false
}

// copiesTold returns how many blocks the rank must have by its events, and how many fit; 0: unknown.
func (r *rank) copiesTold() (told, room int) {
	if r.link == nil || !r.link.joined.live || r.link.follower.Stats().Partial {
		return 0, 0
	}
	return r.link.heard.held(), r.s.seen.series.scrape.Ranks[r.n].Cache.Blocks
}

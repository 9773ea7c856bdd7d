// Package setup is still: it finds wrong settings of engines in what the engines report, and names the flag
// of vLLM or the line of the configuration to change. The router uses it when an engine joins, and the
// doctor on demand.
package setup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/replica"
)

// These are the troubles, with their names as states of a replica.
const (
	NoConnector     = "no_connector"      // it shows no KV connector, but prompts must be handed over
	NIXLBehind      = "nixl_behind"       // another connector stands before NIXL in its MultiConnector
	NoEvents        = "no_events"         // it publishes no block events that a router could follow
	NoPrefixCaching = "no_prefix_caching" // it keeps no prefixes
	OtherTokenizer  = "other_tokenizer"   // it makes other token ids from the same text than the rest
	OtherVersion    = "other_version"     // its version of vLLM differs from the rest
	OtherModel      = "other_model"       // it serves another model than the configuration says
	HiddenModel     = "hidden_model"      // it serves a name that is an alias
)

// Names returns all troubles.
func Names() []string {
	return []string{
		NoConnector, NIXLBehind, NoEvents, NoPrefixCaching, OtherTokenizer, OtherVersion, OtherModel,
		HiddenModel,
	}
}

// Trouble is one fault of an engine.
type Trouble struct {
	Name string // one of [Names]
	Seen string // what shows it
	Do   string // what to change
}

// String describes the problem and the fix.
func (t Trouble) String() string { return t.Seen + ": " + t.Do }

// Publish is the flag that makes an engine publish its block events.
const Publish = `--kv-events-config '{"enable_kv_cache_events":true,` +
	`"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657"}'`

// KeepPrefixes is the remedy for an engine without prefix caching.
const KeepPrefixes = "start the engine without --no-enable-prefix-caching " +
	"(it is on by default for generating models)"

// These are the remedies for engines that differ, so that one engine can take no KV blocks of the other.
const (
	SameModel = "start all engines with the same --model: vLLM compares paths and names " +
		"letter by letter before a KV transfer"
	SameName      = "start all engines with the same --model and --served-model-name"
	SameVersion   = "bring all engines to one version; no pair of two versions hands prompts over"
	SameCacheType = "start all engines with the same --kv-cache-dtype"
	SameBlockSize = "start all engines with the same --block-size"
	SameTokenizer = "start all engines with the same --tokenizer, --chat-template and revision of the model"
)

// Flag is the flag that gives an engine of a role the connector.
func (kv KV) Flag(role replica.Role) string {
	side := "kv_producer"
	if role == replica.Decode {
		side = "kv_consumer"
	}
	return fmt.Sprintf(`--kv-transfer-config '{"kv_connector":"%s",`+
		`"kv_role":"%s","kv_load_failure_policy":"fail"%s}'`, kv.Connector, side, kv.Extra)
}

// Strict reports whether an engine with the connector must have the role of its pool, and never kv_both.
func (kv KV) Strict() bool { return kv.Extra != "" }

// KV is the KV connector that engines should have.
type KV struct {
	Connector string // the "kv_connector" of vLLM's flag
	Extra     string // further members of the flag, each after a comma
	Series    string // the series in /metrics that show it, see [replica.Facts.Connector]; "" for none
	// A prefill engine has a bootstrap server, which tells the addresses of its blocks.
	Bootstrap bool
	Writes    bool // a prefill engine writes into a decode engine, at an address that it is told
	NoPlain   bool // a decode engine with it may get no request without transfer params
	// An engine with it answers an adapter from blocks of another model.
	NoAdapters bool
}

// Of returns the KV of engines whose connector has the traits t.
func Of(t connector.Traits) KV {
	return KV{
		Connector: t.Engines, Extra: t.Extra, Series: t.Series, Bootstrap: t.Bootstrap, Writes: t.NamesDecode,
		NoPlain: t.NoPlain, NoAdapters: t.NoAdapters,
	}
}

// Wanted is what the configuration requires of an engine.
type Wanted struct {
	Split bool // prompts are handed over between the pools
	KV
	Events bool // its block events are followed
	// The model that the engine should serve, "" for any, and the names that are aliases.
	Model   string
	Aliases []string
}

// Alone returns the troubles of an engine that show without any other engine.
func Alone(r *replica.Replica, want Wanted) (all []Trouble) {
	f := &r.Facts
	if want.Split && want.Series != "" && f.Measured() && f.Connector != want.Series {
		all = append(all, Trouble{
			NoConnector, "it shows no KV connector of this kind (no series of " + want.Series + " in /metrics)",
			"start the engine with " + want.Flag(r.Role),
		})
	}
	if want.Split && want.Series == "nixl" && !replica.Agree(f.FirstConnector, want.Series) {
		all = append(all, Trouble{
			NIXLBehind, "its MultiConnector has " + f.FirstConnector + " before NIXL (by the series in /metrics)",
			"name NIXL first in the list connectors of --kv-transfer-config",
		})
	}
	if f.KeepsNoPrefixes() {
		all = append(all, Trouble{
			NoPrefixCaching, `it keeps no prefixes (/metrics says enable_prefix_caching="False")`,
			KeepPrefixes,
		})
	}
	if want.Events && f.Events.Endpoint == "" {
		all = append(all, Trouble{
			NoEvents, "it names no stream of block events, and the configuration names none", publish(r),
		})
	}
	return append(all, named(r, want)...)
}

// named returns the troubles of the names under which an engine serves its models.
func named(r *replica.Replica, want Wanted) (all []Trouble) {
	f := &r.Facts
	if want.Model != "" && len(f.Models) > 0 && !r.Serves(want.Model) {
		all = append(all, Trouble{
			OtherModel, fmt.Sprintf("it serves %s, and the configuration says model: %s", f.Model, want.Model),
			fmt.Sprintf("write `model: %s` at the replica %s, or start the engine with --served-model-name %s",
				f.Model, r.ID, want.Model),
		})
	}
	for _, name := range f.Models {
		if slices.Contains(want.Aliases, name) {
			all = append(all, Trouble{
				HiddenModel,
				fmt.Sprintf("it serves %s, which is the name of an alias: no client reaches this model", name),
				"give the alias in aliases another name, or the engine another --served-model-name",
			})
			break
		}
	}
	return all
}

// publish says how to make an engine publish events. An engine before 0.30 does not report its endpoint.
func publish(r *replica.Replica) string {
	do := "start the engine with " + Publish
	if f := &r.Facts; f.Version != "" && !replica.AtLeast(f.Version, 0, 30) {
		do += fmt.Sprintf("; vLLM before 0.30 does not say where it publishes, so write "+
			"pools.%v.replicas: [{url: %s, events: {endpoint: tcp://%s:5557, replay: tcp://%[3]s:5657}}]",
			r.Role, r.URL, r.Host)
	}
	return do
}

// Beside returns, for each of all, the troubles that show in comparison with the others that serve its model.
// Data-parallel ranks of one server count once.
func Beside(all []*replica.Replica) [][]Trouble {
	models := map[string]*comparison{}
	for _, r := range all {
		c := models[r.Facts.Model]
		if c == nil {
			c = &comparison{seen: make(map[string][questions]bool, len(all))}
			models[r.Facts.Model] = c
		}
		c.add(r)
	}
	for _, c := range models {
		c.finish()
	}
	found := make([][]Trouble, len(all))
	for i, r := range all {
		c := models[r.Facts.Model]
		if c.odd(r, 0) {
			found[i] = append(found[i], Trouble{OtherVersion, "engines differ, vLLM: " + c.said[0], SameVersion})
		}
		for n, what := range [...]string{"text", "chat", "chat with tools", "chat with tools, as it is rendered"} {
			if c.odd(r, n+1) {
				seen := "engines differ, token ids of the same " + what + ": " + c.said[n+1]
				found[i] = append(found[i], Trouble{OtherTokenizer, seen, SameTokenizer})
				break
			}
		}
	}
	return found
}

// Apart returns what to change so that d can take the KV blocks of p: one entry for each known difference. kv
// is the connector that they should have.
func Apart(kv KV, p, d *replica.Replica) (do []string) {
	a, b := &p.Facts, &d.Facts
	for _, x := range [...]struct{ p, d, do string }{
		{a.Root, b.Root, SameModel},
		{a.Version, b.Version, SameVersion},
		{a.CacheDType, b.CacheDType, SameCacheType},
	} {
		if !replica.Agree(x.p, x.d) {
			do = append(do, x.do)
		}
	}
	if !replica.Agree(a.Connector, b.Connector) || a.Ends(b) {
		for _, r := range [...]*replica.Replica{p, d} {
			if (r.Facts.Connector == "nixl") != strings.HasPrefix(kv.Connector, "Nixl") {
				do = append(do, fmt.Sprintf("start %s with %s", r.ID, kv.Flag(r.Role)))
			}
		}
	}
	if !replica.Agree(a.Tokens[0], b.Tokens[0]) {
		do = append(do, SameTokenizer)
	}
	if !replica.Agree(a.BlockSize, b.BlockSize) {
		do = append(do, SameBlockSize)
	}
	if len(a.Models) > 0 && len(b.Models) > 0 && !slices.ContainsFunc(a.Models, d.Serves) {
		do = append(do, SameName)
	}
	return do
}

// questions is how many values of an engine are compared: its version, and its token ids of four samples.
const questions = 5

// value is an engine's answer to a question. The zero value is unknown.
type value struct {
	known   bool
	version string
	hash    uint16 // of token ids
}

func valueOf(f *replica.Facts, question int) value {
	if question == 0 {
		return value{f.Version != "", f.Version, 0}
	}
	hash := f.Tokens[question-1]
	return value{hash != 0, "", uint16(hash)}
}

func (v value) String() string {
	if v.version != "" {
		return v.version
	}
	return fmt.Sprintf("#%04x", v.hash)
}

// comparison has the engines that serve one model, in groups with the same value.
type comparison struct {
	groups [questions][]group         // the largest first
	said   [questions]string          // the groups for people; "" for fewer than two
	seen   map[string][questions]bool // the questions to which a server has counted
}

// group has the engines with one value.
type group struct {
	value value
	n     int
	names []string // of the first ones
}

// mostNamed is how many engines of a group are named. Larger groups are counted.
const mostNamed = 4

func (c *comparison) add(r *replica.Replica) {
	seen := c.seen[r.URL]
	for q := range questions {
		v := valueOf(&r.Facts, q)
		if !v.known || seen[q] {
			continue
		}
		seen[q] = true
		at := slices.IndexFunc(c.groups[q], func(g group) bool { return g.value == v })
		if at < 0 {
			at = len(c.groups[q])
			c.groups[q] = append(c.groups[q], group{value: v})
		}
		g := &c.groups[q][at]
		if g.n++; g.n <= mostNamed {
			g.names = append(g.names, string(r.ID))
		}
	}
	c.seen[r.URL] = seen
}

func (c *comparison) finish() {
	for q, groups := range c.groups {
		slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.n, a.n) })
		if len(groups) < 2 {
			continue
		}
		said := make([]string, len(groups))
		for i, g := range groups {
			said[i] = g.String()
		}
		c.said[q] = strings.Join(said, ", ")
	}
}

// odd reports whether r has another value than most engines. If no value has a majority, the wrong engine is
// unknown, and each is odd. An engine without a known value is not odd.
func (c *comparison) odd(r *replica.Replica, question int) bool {
	groups := c.groups[question]
	if len(groups) < 2 {
		return false
	}
	mine := valueOf(&r.Facts, question)
	return mine.known && (groups[0].value != mine || groups[1].n == groups[0].n)
}

// String names the engines of a small group and counts those of a large one.
func (g group) String() string {
	if g.n > mostNamed {
		return fmt.Sprintf("%v (%d engines)", g.value, g.n)
	}
	return fmt.Sprintf("%v (%s)", g.value, strings.Join(g.names, ", "))
}

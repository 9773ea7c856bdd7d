package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// fleetChecks are the checks that compare engines with each other.
//
// Long: a row a check.
func fleetChecks() []check {
	return []check{
		{
			id: "model-mismatch", title: "each model has engines of both pools, loaded from one place",
			trouble: "engines of the two pools do not serve the same models", fleet: sameModel,
			why: "A request goes to engines that serve its model under the name it says: one with another name gets " +
				"none, and a pair that loaded different weights cannot exchange KV.",
		},
		{
			id: "version-mismatch", title: "all engines are of the same version",
			trouble: "the engines are of different versions", fleet: sameVersion,
			why: "vLLM refuses a KV transfer between two versions, and Tandem forms no such pair.",
		},
		{
			id: "max-model-len-mismatch", title: "all engines take prompts of the same length",
			trouble: "the engines take prompts of different lengths", fleet: sameLength,
			why: "A prompt that fits one engine is refused by another: the choice of replicas for long prompts is " +
				"smaller than it looks.",
		},
		{
			id: "block-size-mismatch", title: "block sizes are the same everywhere",
			trouble: "the engines have different block sizes", fleet: sameBlockSize,
			why: "Prompts of a model are matched by blocks of one size: an engine with another is never found to " +
				"have anything. Between the pools, such a pair is never formed.",
		},
		{
			id: "kv-type-mismatch", title: "KV caches are of the same type",
			trouble: "the engines have KV caches of different types", fleet: sameType,
			why: "vLLM refuses a KV transfer between two types, and Tandem forms no such pair.",
		},
		{
			id: "adapter-mismatch", title: "adapters are the same everywhere",
			trouble: "engines have different adapters under one name", fleet: sameAdapters,
			why: "Blocks that were computed with other weights mean nothing to the decode engine, and vLLM takes " +
				"them: Tandem hands requests for such an adapter over between no such two engines.",
		},
		{
			id: "tokenizer-drift", title: "all engines make the same tokens of the same text",
			trouble: "the engines make different tokens of the same text", fleet: sameTokens,
			needs: []string{"model-mismatch"},
			why: "Both legs of a request must carry the same ids: a decode engine that makes a longer prompt of the " +
				"same text than was prefilled dies in vLLM, one that makes a " +
				"shorter one answers wrongly. And keys of other tokens match nothing.",
		},
	}
}

// there returns the servers that answered, each URL once.
func (f *fleet) there() []*server {
	var all []*server
	for _, s := range f.servers {
		if s.seen.reach == nil && !slices.ContainsFunc(all, func(o *server) bool { return o.url == s.url }) {
			all = append(all, s)
		}
	}
	return all
}

// group has the servers with one value.
type group struct {
	value string
	names []string
}

// groups sorts servers by a value, the largest group first. "" is unknown and left out.
func groups(all []*server, value func(*server) string) []group {
	var out []group
	for _, s := range all {
		v := value(s)
		at := slices.IndexFunc(out, func(g group) bool { return g.value == v })
		switch {
		case v == "":
			continue
		case at < 0:
			at = len(out)
			out = append(out, group{value: v})
		}
		out[at].names = append(out[at].names, s.name)
	}
	slices.SortStableFunc(out, func(a, b group) int { return len(b.names) - len(a.names) })
	return out
}

// String names the servers of a small group and counts those of a large one.
func (g group) String() string {
	if len(g.names) > 4 {
		return fmt.Sprintf("%s (%d engines)", g.value, len(g.names))
	}
	return fmt.Sprintf("%s (%s)", g.value, strings.Join(g.names, ", "))
}

// alike judges one value of all servers, separately for each model.
func (f *fleet) alike(
	what string, value func(*server) string, differ func(do, seen string, args ...any) verdict, do string,
) verdict {
	models := byModel(f.there())
	if len(models) < 2 {
		return alikeOf(f.there(), what, value, differ, do)
	}
	var same []string
	for _, servers := range models {
		model := servers[0].seen.model.ID
		switch v := alikeOf(servers, what, value, differ, do); v.status {
		case OK:
			same = append(same, model+": "+v.seen)
		case Skipped: // nothing to compare
		default:
			v.seen = "model " + model + ", " + v.seen
			return v
		}
	}
	if len(same) == 0 {
		return skip("no model has two engines that tell their %s", what)
	}
	return fine("%s", strings.Join(same, "; "))
}

// byModel sorts servers by the model that they serve, in the order in which models come.
func byModel(all []*server) (models [][]*server) {
	for _, s := range all {
		at := slices.IndexFunc(models, func(m []*server) bool { return m[0].seen.model.ID == s.seen.model.ID })
		if at < 0 {
			at = len(models)
			models = append(models, nil)
		}
		models[at] = append(models[at], s)
	}
	return models
}

// alikeOf judges one value of some servers.
func alikeOf(
	all []*server, what string, value func(*server) string,
	differ func(do, seen string, args ...any) verdict, do string,
) verdict {
	if len(all) < 2 {
		return skip("there are not two engines to compare")
	}
	switch found := groups(all, value); len(found) {
	case 0:
		return skip("no engine tells its %s", what)
	case 1:
		return fine("%s", found[0].value)
	default:
		return differ(do, "%s: %s", what, list(found))
	}
}

// sameModel requires that each model is in both pools, and that the engines of a model have loaded it from
// one place.
func sameModel(f *fleet) verdict {
	all := f.there()
	served := list(groups(all, func(s *server) string { return s.seen.model.ID }))
	has := func(servers []*server, role replica.Role) bool {
		return slices.ContainsFunc(servers, func(s *server) bool { return s.role == role })
	}
	for _, servers := range byModel(all) {
		model := servers[0].seen.model.ID
		if model != "" && has(all, replica.Decode) && !has(servers, replica.Decode) {
			return fail(setup.SameName+", or start a decode engine with "+model,
				"no decode engine serves %s; model: %s", model, served)
		}
		if model != "" && has(all, replica.Prefill) && !has(servers, replica.Prefill) {
			return warn("start a prefill engine with "+model+"; until then its decode engines compute its prompts",
				"no prefill engine serves %s; model: %s", model, served)
		}
	}
	return f.alike("model", func(s *server) string {
		if s.seen.model.Root == "" || s.seen.model.Root == s.seen.model.ID {
			return s.seen.model.ID
		}
		return fmt.Sprintf("%s, loaded from %s", s.seen.model.ID, s.seen.model.Root)
	}, fail, setup.SameModel)
}

func sameVersion(f *fleet) verdict {
	if t, differ := f.trouble(setup.OtherVersion); differ {
		return fail(t.Do+". Bring them there a pool at a time: while both have some of each, pairs remain",
			"%s", t.Seen)
	}
	return f.alike("version", func(s *server) string { return s.seen.version }, fail,
		"bring the engines of each model to one version")
}

// trouble finds a trouble by name among the troubles that the router would report about differences between
// engines.
func (f *fleet) trouble(name string) (setup.Trouble, bool) {
	var all []*replica.Replica
	for _, s := range f.there() {
		if len(s.ranks) > 0 {
			all = append(all, new(s.ranks[0].replica()))
		}
	}
	for _, of := range setup.Beside(all) {
		if at := slices.IndexFunc(of, func(t setup.Trouble) bool { return t.Name == name }); at >= 0 {
			return of[at], true
		}
	}
	return setup.Trouble{}, false
}

func sameLength(f *fleet) verdict {
	return f.alike("max_model_len", func(s *server) string { return number(s.seen.model.MaxModelLen) }, warn,
		"start all engines with the same --max-model-len")
}

// sameAdapters compares the paths from which each adapter was loaded. Engines report nothing else about an
// adapter.
func sameAdapters(f *fleet) verdict {
	var names []string
	for _, s := range f.there() {
		for _, a := range s.seen.adapters {
			if !slices.Contains(names, a.ID) {
				names = append(names, a.ID)
			}
		}
	}
	if len(names) == 0 && len(f.there()) < 2 {
		return skip("there are not two engines to compare")
	}
	if len(names) == 0 {
		return fine("no engine serves one")
	}
	for _, name := range names {
		v := f.alike("path of adapter "+name, func(s *server) string {
			for _, a := range s.seen.adapters {
				if a.ID == name {
					return s.pool.AdapterRoot(a.Root)
				}
			}
			return ""
		}, warn, "load it from the same path on all engines, give other weights another name, or, where the same "+
			"adapters lie in different folders, name those in pools.POOL.adapter_folders")
		if v.status != OK {
			return v
		}
	}
	return fine("%s", strings.Join(names, ", "))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func sameBlockSize(f *fleet) verdict {
	return f.alike("block size", func(s *server) string {
		for _, r := range s.ranks {
			if n := r.blockSize(); n > 0 {
				return number(n)
			}
		}
		return ""
	}, fail, setup.SameBlockSize)
}

func sameType(f *fleet) verdict {
	return f.alike("kv-cache-dtype", func(s *server) string {
		for _, r := range s.ranks {
			if t := s.seen.series.scrape.Ranks[r.n].Cache.DType; t != "" {
				return t
			}
		}
		return ""
	}, fail, setup.SameCacheType)
}

var errEmpty = errors.New("no ids")

func sameTokens(f *fleet) verdict {
	all := f.there()
	if len(all) < 2 {
		return skip("there are not two engines to compare")
	}
	if t, differ := f.trouble(setup.OtherTokenizer); differ {
		return fail(t.Do, "%s%s", t.Seen, drift(all))
	}
	var silent []string
	for _, s := range all {
		if x := s.seen.tokens.Text; x.IDs == nil {
			silent = append(silent, fmt.Sprintf("%s: %v", s.name, cmp.Or(x.Err, errEmpty)))
		}
	}
	if len(silent) > 0 {
		return warn("let POST /tokenize through to the engines", "not all could be asked: %s",
			strings.Join(silent, "; "))
	}
	return fine("the same %d ids of a text and %d of a chat",
		len(all[0].seen.tokens.Text.IDs), len(all[0].seen.tokens.Chat.IDs))
}

// drift says briefly how the ids of two servers differ; "" if they are the same.
func drift(all []*server) string {
	for _, of := range []func(*server) []uint32{
		func(s *server) []uint32 { return s.seen.tokens.Text.IDs },
		func(s *server) []uint32 { return s.seen.tokens.Chat.IDs },
		func(s *server) []uint32 { return s.seen.tokens.Tools.IDs },
		func(s *server) []uint32 { return s.seen.tokens.Rendered.IDs },
	} {
		var a *server
		for _, b := range all {
			if len(of(b)) == 0 {
				continue
			}
			if a == nil {
				a = b
			}
			x, y := of(a), of(b)
			if slices.Equal(x, y) {
				continue
			}
			at := 0
			for at < min(len(x), len(y)) && x[at] == y[at] {
				at++
			}
			return fmt.Sprintf("; %s makes %d and %s makes %d, which part at position %d",
				a.name, len(x), b.name, len(y), at)
		}
	}
	return ""
}

// whyNoPair says why no handoff was tried.
func (f *fleet) whyNoPair() string {
	if f.roles {
		return noPair
	}
	return noRoles
}

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// engineChecks are the checks of a server's HTTP side, and of a prompt.
//
// Long: a row a check.
func engineChecks() []check {
	return []check{
		{
			id: "engine-unreachable", title: "the engine answers", trouble: "the engine does not answer",
			server: reachable,
			why:    "Tandem uses no replica that it cannot ask.",
		},
		{
			id: "several-addresses", title: "its name has one address", trouble: "its name has several addresses",
			server: oneAddress, needs: []string{"engine-unreachable"},
			why: "Each connection may reach another engine. Tandem takes them for one replica, and its picture of " +
				"their cache and load is of none of them.",
		},
		{
			id: "engine-version", title: "its version is known and new enough",
			trouble: "its version is unknown or old", server: versionKnown, needs: []string{"engine-unreachable"},
			why: "Prefill and decode engines must be of one version, and before 0.30 an engine cannot say where it " +
				"publishes its events.",
		},
		{
			id: "metrics-missing", title: "it tells its load and its cache",
			trouble: "it does not tell its load and its cache", server: metricsThere,
			needs: []string{"engine-unreachable"},
			why: "Without vLLM's series in /metrics, block size, cache size, queue and free KV blocks are " +
				"unknown: placement guesses, and a restart is noticed late.",
		},
		{
			id: "connector-missing", title: "it has a KV connector", trouble: "no KV connector is to be seen",
			server: connectorThere, needs: []string{"engine-unreachable", "metrics-missing"},
			why: "Without a connector no KV cache can be handed from prefill to decode; split requests fail or " +
				"compute the prompt twice.",
		},
		{
			id: "nixl-behind", title: "no other connector stands before NIXL",
			trouble: "another connector stands before NIXL", server: nixlFirst, needs: []string{"connector-missing"},
			why: "A MultiConnector loads a prompt from the first child that finds anything of the prompt. If a " +
				"store finds one block, the prefilled blocks are given back unread, and the decode engine " +
				"computes the rest.",
		},
		{
			id: "test-prompt", title: "it computes a prompt of token ids",
			trouble: "it does not compute a prompt of token ids", rank: promptAnswered, sends: true,
			why: "The prefill leg is such a request. What follows can only be seen with one.",
		},
		{
			id: "prefix-caching-off", title: "it keeps prefixes", trouble: "it keeps no prefixes", rank: prefixesKept,
			why: "An engine without prefix caching computes every prompt whole and announces no blocks: wherever a " +
				"prompt is sent, nothing is saved.",
		},
		{
			id: "usage-details-missing", title: "it says how many prompt tokens were cached",
			trouble: "it does not say how many prompt tokens were cached", rank: detailsThere, sends: true,
			needs: []string{"test-prompt"},
			why: "cached_tokens is the truth that the block index is measured against; without it a wrong index " +
				"goes unnoticed.",
		},
		{
			id: "orca-missing", title: "it reports its load with its answers",
			trouble: "it does not report its load with its answers", rank: orcaThere, sends: true,
			needs: []string{"test-prompt"},
			why: "Reports in answers are fresher than any scrape; without them the view of the queue is as old as " +
				"poll_interval.",
		},
	}
}

func reachable(s *server) verdict {
	err := s.seen.reach
	if err == nil {
		return fine("%s serves %s", s.url, list(s.seen.names))
	}
	seen, do := engine.Explain(err, s.url, s.poolPath())
	return fail(cmp.Or(do, "see that the URL is that of a vLLM server"), "%s: %s", s.url, seen)
}

func oneAddress(s *server) verdict {
	if len(s.seen.several) == 0 {
		return fine("%s", s.host)
	}
	role := ""
	if s.fleet.roles {
		role = s.role.String()
	}
	seen, do := setup.Addresses(s.url, role, s.seen.several)
	return warn(do, "%s", seen)
}

func versionKnown(s *server) verdict {
	switch v := s.seen.version; {
	case v == "":
		return warn("nothing, if it is a vLLM behind a proxy: let GET /version pass", "GET /version tells none")
	case !replica.AtLeast(v, 0, 30):
		return warn("use 0.30 or newer, or name the endpoints of its events in the configuration", "vLLM %s", v)
	default:
		return fine("vLLM %s", v)
	}
}

func metricsThere(s *server) verdict {
	switch err := s.seen.series.scrapeErr; {
	case err == nil:
		return fine("/metrics tells of %s", plural(len(s.seen.series.scrape.Ranks), "rank"))
	case errors.Is(err, engine.ErrNoMetrics):
		return warn("start the engine without --disable-log-stats", "/metrics has none of vLLM's series").andStop()
	default:
		return warn("let GET /metrics through to the engine", "GET /metrics: %v", err).andStop()
	}
}

// connectorThere looks for the series of the configured connector. Roles are not visible from outside, and
// NIXL ignores them.
func connectorThere(s *server) verdict {
	switch want := wanted(s); {
	case want.Series == "":
		return skip("no series in /metrics shows %s", want.Connector)
	case s.seen.series.scrape.Connector == want.Series:
		return fine("series of %s in /metrics", want.Series)
	}
	if t, ok := s.ranks[0].trouble(setup.NoConnector); ok {
		return warn(t.Do, "%s", t.Seen)
	}
	if !s.fleet.roles {
		return skip(noRoles)
	}
	return skip("there are not two pools to move KV between")
}

// nixlFirst looks for a store before NIXL in a MultiConnector. Some stores show no series.
func nixlFirst(s *server) verdict {
	if want := wanted(s); want.Series != "nixl" {
		return skip("%s is configured, not NIXL", want.Connector)
	}
	if t, ok := s.ranks[0].trouble(setup.NIXLBehind); ok {
		return warn(t.Do, "%s", t.Seen)
	}
	return fine("no series of another connector stands before NIXL's in /metrics")
}

// splits reports whether there are a prefill and a decode pool.
func (s *server) splits() bool {
	p := s.fleet.cfg.Pools
	return s.fleet.roles && len(p.Prefill.Replicas) > 0 && len(p.Decode.Replicas) > 0
}

func promptAnswered(r *rank) verdict {
	t := r.trial
	if legsOnly(r.s) {
		return skip("such a decode engine would answer it from blocks that were never filled")
	}
	if t.err != nil {
		return fail("look into the engine's log; see that it serves "+r.s.seen.model.ID+" on /v1/completions", "%v",
			t.err)
	}
	if t.first.promptTokens != len(t.prompt) {
		return fail("see that nothing between Tandem and the engine rewrites requests",
			"%d token ids were sent and %d were counted", len(t.prompt), t.first.promptTokens)
	}
	return fine("%d token ids sent three times, once with a cache salt, one token each", len(t.prompt))
}

func prefixesKept(r *rank) verdict {
	t := r.trial
	tried := t != nil && t.err == nil && t.second.cached >= 0
	if off, is := r.trouble(setup.NoPrefixCaching); is {
		return fail(off.Do, "%s", off.Seen)
	}
	switch self := r.replica(); {
	case tried && t.second.cached == 0 && r.oneBlock():
		return fail(setup.KeepPrefixes+"; if it is on, the model's layers may not allow it",
			"the same prompt of %d tokens, sent twice, found nothing cached", len(t.prompt))
	case tried:
		return fine("the same prompt, sent twice, found %d of %d tokens cached", t.second.cached, len(t.prompt))
	case self.Facts.PrefixCaching:
		return fine(`/metrics says enable_prefix_caching="True"`)
	}
	return skip("/metrics does not say, and nothing else showed it")
}

func detailsThere(r *rank) verdict {
	if r.trial.second.cached >= 0 {
		return fine("usage.prompt_tokens_details.cached_tokens is there")
	}
	return warn("start the engine with --enable-prompt-tokens-details", "usage has no prompt_tokens_details")
}

func orcaThere(r *rank) verdict {
	switch t := r.trial; {
	case t.first.orca:
		return fine("endpoint-load-metrics is there")
	case len(r.s.ranks) > 1 && t.first.orcaUnclear:
		return fine(
			"a report that does not say whose it is, as always with several ranks in one server; /metrics is used",
		)
	case t.first.orcaUnclear:
		return warn("start the engine without --disable-log-stats",
			"the report in the answer is empty or cannot be read")
	}
	return warn("use vLLM 0.12 or newer, and let the headers endpoint-load-metrics-format and "+
		"endpoint-load-metrics pass any proxy between",
		"asked for in a header, and not in the answer")
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// poolPath is the configuration path of the server's pool.
func (s *server) poolPath() string {
	if !s.fleet.roles {
		return "pools.POOL"
	}
	return "pools." + s.role.String()
}

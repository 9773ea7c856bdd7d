package doctor

import (
	"fmt"
	"time"
)

func sizesAgree(r *rank) verdict {
	events := r.sizesSeen()
	told := r.s.seen.series.scrape.Ranks[r.n].Cache.BlockSize
	wanted := r.s.pool.BlockSize
	line := r.s.poolPath() + ".block_size"
	switch {
	case len(events) > 1:
		return warn("nothing for a hybrid model: Tandem counts the blocks of its full attention; otherwise see "+
			"that one engine publishes there", "its events have blocks of %s tokens", list(events))
	case len(events) == 1 && told > 0 && told != events[0]:
		return warn("see whether the events are this engine's; Tandem goes by them",
			"/metrics says %d tokens a block, and its events have %d", told, events[0])
	case len(events) == 1 && wanted > 0 && wanted != events[0]:
		return warn("remove "+line+": it is used only where an engine does not say",
			"%s is %d, and its events have blocks of %d tokens", line, wanted, events[0])
	case len(events) == 0 && wanted > 0 && told > 0 && wanted != told:
		return warn("remove "+line+": it is used only where an engine does not say",
			"%s is %d, and /metrics says %d tokens a block", line, wanted, told)
	case len(events) == 1:
		return fine("%d tokens in its events%s", events[0], also(told, wanted))
	case told > 0:
		return fine("%d tokens, says /metrics%s", told, also(0, wanted))
	}
	return skip("neither events nor /metrics tell it")
}

func also(told, wanted int) string {
	switch {
	case told > 0 && wanted > 0:
		return ", in /metrics and in the configuration"
	case told > 0:
		return " and in /metrics"
	case wanted > 0:
		return " and so does the configuration"
	}
	return ""
}

// predictionHolds compares two numbers for the second sending of the prompt. One is the match that Tandem's
// index predicted from the engine's events. The other is the number of tokens that the engine found in its
// cache.
func predictionHolds(r *rank) verdict {
	t := r.trial
	if t.size == 0 {
		return r.notOurs()
	}
	promised, got := max(t.depth, t.late)*t.size, t.second.cached
	const lost = "look for lost events: tandem_events_gaps_total, tandem_events_lost_total"
	if n, room := r.copiesTold(); n > 2*room && room > 0 { // a block may have two names
		return warn("leave kv_cache_report_mode out of requests (vllm_xargs): the index takes each announcement "+
			"for a block",
			"its events tell of %s stored and not removed, and its cache holds %d: cached prefixes are "+
				"announced again",
			plural(n, "block"), room)
	}
	if full := len(t.prompt) / t.size * t.size; got < 0 && promised == full {
		return fine("the index found all %s of the prompt; what it got from them the engine does not say",
			plural(full/t.size, "block"))
	} else if got < 0 {
		return warn(lost,
			"the index found %d of the prompt's %d tokens; how many were cached the engine does not say", promised,
			full)
	}
	what := fmt.Sprintf("the index promised %d of %d tokens, and the engine had %d cached",
		promised, len(t.prompt), got)
	switch {
	case promised == got:
		return fine("%s", what)
	case promised == 0:
		return fail("report it with the output of this command and the engine's version",
			"%s: its events cannot be put in order", what)
	case promised > got:
		return warn("expect it of hybrid models, which reuse fewer tokens than they announce, and of engines "+
			"whose cache is full", "%s", what)
	}
	return warn(lost, "%s", what)
}

func saltsApart(r *rank) verdict {
	t := r.trial
	switch full := len(t.prompt) / t.size; {
	case t.crossed > 0:
		return fail("report it with the output of this command",
			"a salted prompt was promised %s before it was ever sent", plural(t.crossed, "block"))
	case t.salted.cached > 0:
		return fail("use vLLM 0.9 or newer, which honours cache_salt",
			"the engine gave a salted prompt %d tokens of the plain one's blocks", t.salted.cached)
	case t.byRoot < full:
		return warn(
			"use vLLM 0.17 or newer, whose events carry the salt; until then salted prompts are routed by load alone",
			"%d of %d blocks of a salted prompt are found under its salt", t.byRoot, full,
		)
	}
	if t.salted.cached < 0 {
		return fine("the blocks of a salted prompt are found under its salt")
	}
	return fine(
		"the same prompt with a salt found nothing of the plain one, and its blocks are found under its salt",
	)
}

const (
	skewByEvents = time.Second     // events are a few milliseconds old
	skewByDate   = 2 * time.Second // the header has whole seconds
)

func clocksAgree(r *rank) verdict {
	const do = "run NTP (chrony) on both machines"
	off, byEvents := r.link.apart() // the engine's clock minus ours
	switch limit := skewByEvents; {
	case byEvents:
		if off < -limit || off > limit {
			return warn(do, "its newest batch is stamped %s", aside(off))
		}
		return fine("a batch is stamped %s", aside(off))
	case !r.s.seen.clock.date.IsZero():
		off = r.s.seen.clock.date.Sub(r.s.seen.clock.heard)
		if off < -skewByDate || off > skewByDate {
			return warn(do, "its Date header is %s", aside(off))
		}
		return fine("its Date header is within %v of our clock", skewByDate)
	}
	return skip("no batch came by, and its answers have no Date")
}

func aside(off time.Duration) string {
	if off < 0 {
		return short(-off) + " behind our clock"
	}
	return short(off) + " ahead of our clock"
}

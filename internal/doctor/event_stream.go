package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// where returns the configuration line for an engine that does not report where it publishes.
func (s *server) where(endpoint, replay, topic string) string {
	line := "endpoint: " + endpoint
	if replay != "" {
		line += ", replay: " + replay
	}
	if topic != "" {
		line += fmt.Sprintf(", topic: %q", topic)
	}
	return fmt.Sprintf("%s.replicas: [{url: %s, events: {%s}}]", s.poolPath(), s.url, line)
}

func canSubscribe(r *rank) verdict {
	if r.link == nil {
		return skip("there is no address to connect to")
	}
	switch {
	case r.link.err != nil:
		return r.cannot("events", r.source.Endpoint, r.link.err)
	case !r.link.connected():
		return fail("exchange the two addresses if they are: events come from a PUB socket, replays from a ROUTER",
			"events at %s: a ZeroMQ socket is there, and no publisher (%s)", r.source.Endpoint, r.link.said.reason)
	}
	return fine("subscribed to every topic at %s", r.source.Endpoint)
}

// cannot explains a connection that failed.
func (r *rank) cannot(what, endpoint string, err *linkError) verdict {
	switch {
	case err.layer == atAddress:
		return fail("write an address as tcp://HOST:PORT", "%s at %s: %v", what, endpoint, err)
	case err.layer == atZMTP:
		return fail(
			"see that the port is the one of --kv-events-config and that no HTTP proxy or other service stands there",
			"%s at %s: something listens that does not speak ZeroMQ: %v", what, endpoint, err,
		)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail("see that the engine listens there (ss -ltn on its machine) and that the endpoint in "+
			"--kv-events-config has a *; in Kubernetes, that the port belongs to the pod",
			"%s at %s: connection refused", what, endpoint)
	case errors.Is(err, context.DeadlineExceeded):
		return fail("open the port in firewalls and network policies between Tandem and the engine",
			"%s at %s: no answer in %v", what, endpoint, linkTime)
	}
	return fail("correct the address or the way to it", "%s at %s: %v", what, endpoint, err)
}

func topicFits(r *rank) verdict {
	seen, told := r.topics()
	want := r.source.Topic
	if len(seen) == 0 {
		return skip("no batch came by, so its topic was not seen")
	}
	for _, t := range seen {
		if strings.HasPrefix(t, want) {
			if want == "" {
				return fine("every topic is wanted, and %q comes", t)
			}
			return fine("%q is wanted, and %q comes", want, t)
		}
	}
	how := "comes"
	if told {
		how = "is what the engine tells"
	}
	return fail(fmt.Sprintf("%s, or leave the topic out to get all of this engine's",
		r.s.where(r.source.Endpoint, r.source.Replay, seen[0])),
		"Tandem would subscribe to %q, and %s %s", want, quoted(seen), how)
}

func quoted(all []string) string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}

func announced(r *rank) verdict {
	t, stats := r.trial, r.link.follower.Stats()
	switch gaps := stats.Gaps - r.link.joined.stats.Gaps; {
	case t.depth > 0 && gaps > 0:
		return warn("look for what drops messages between the engine's publisher and Tandem; a router asks for a "+
			"replay of its own accord every half minute only",
			"the blocks of the test prompt came by a replay alone: %s were missing", plural(int(gaps), "live batch"))
	case t.depth > 0:
		return fine("%s of the test prompt", plural(t.depth, "block"))
	case t.late > 0:
		return warn(
			"look whether the engine, or the way to it, is overloaded: it announces a block before it answers",
			"the blocks of the test prompt came, but later than %v after the answer", eventTime,
		)
	case stats.DecodeErrors > 0:
		return fail("see that the endpoint is vLLM's and not another publisher's; report it if it is",
			"%s cannot be read: %s", plural(int(stats.DecodeErrors), "batch"), r.link.said.reason)
	case stats.Batches+stats.WrongRank > 0: // another check judges whose blocks they are
		return fine("%s came by", plural(int(stats.Batches+stats.WrongRank), "batch"))
	}
	return fail("see that the endpoint is that of this engine's running process; "+publish,
		"connected, but nothing came within %v of a new prompt of %d tokens", eventTime, len(t.prompt))
}

func replayThere(r *rank) verdict {
	if r.source.Replay != "" {
		return fine("at %s", r.source.Replay)
	}
	if r.own {
		return warn(`start the engine with "replay_endpoint":"tcp://*:5657" in --kv-events-config and write `+
			r.s.where(r.source.Endpoint, "tcp://"+r.s.host+":5657", r.source.Topic),
			"the configuration names no replay endpoint").andStop()
	}
	return warn(publish, "the engine has no replay_endpoint").andStop()
}

// replayAnswers judges by the router's own follower. An engine's socket drops replies that a slow network
// does not accept in time; the follower then asks again from that point.
func replayAnswers(r *rank) verdict {
	l := r.link
	stats := l.joined.stats
	const look = "look whether the engine hangs or is overloaded; replays are sent by its publisher's thread, " +
		"between two live batches"
	switch came := plural(int(stats.Batches), "batch"); {
	case l.replayErr != nil:
		return r.cannot("replay", r.source.Replay, l.replayErr)
	case l.joined.live && stats.Partial:
		return fail(look, "the replay at %s does not come: %s asked for it, %d were left without an end",
			r.source.Replay, plural(int(stats.Replays), "time"), stats.Timeouts)
	case l.joined.live:
		return fine("%s in %s, asked for %s", came, short(l.joined.took), plural(int(stats.Replays), "time"))
	case stats.Batches > 0:
		return warn("give it more time with --timeout; a router needs as long after each start",
			"the replay at %s is not at its end after %s: %s came", r.source.Replay, short(l.joined.took), came)
	}
	return fail(look, "nothing came of the replay at %s in %s", r.source.Replay, short(l.joined.took))
}

// replayWhole compares the replayed blocks with the cache's capacity. A buffer with more blocks than the
// cache holds has lost little that matters.
func replayWhole(r *rank) verdict {
	p := &r.link.heard
	capacity := r.s.seen.series.scrape.Ranks[r.n].Cache.Blocks
	what := fmt.Sprintf("it begins with batch %d and tells of %s stored in %s",
		p.first, plural(p.stored, "block"), short(p.span))
	switch {
	case p.batches == 0 || p.first == 0:
		return fine("it goes back to the engine's start")
	case capacity > 0 && p.stored >= capacity:
		return fine("%s, more than the %d that fit into the cache", what, capacity)
	}
	steps := ""
	if r.told != nil && r.told.BufferSteps > 0 {
		steps = fmt.Sprintf(" (now %d)", r.told.BufferSteps)
	}
	return warn(`raise "buffer_steps"`+steps+" in --kv-events-config", "%s; the cache holds up to %d",
		what, capacity)
}

func short(d time.Duration) string {
	if d > 0 && d < time.Millisecond {
		return "under 1ms"
	}
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// notOurs explains a stream without events of the test prompt.
func (r *rank) notOurs() verdict {
	for _, s := range r.s.fleet.servers {
		for _, o := range s.ranks {
			if o != r && o.trial != nil && learnSize(r.link.heard.kept, o.trial.prompt) > 0 {
				return fail("exchange the addresses in the configuration: "+r.s.poolPath()+".replicas[].events.endpoint",
					"the stream at %s tells of what was sent to %s", r.source.Endpoint, o.name())
			}
		}
	}
	stats := r.link.follower.Stats()
	if stats.WrongRank > 0 && stats.Batches == 0 {
		return fail("with several ranks, write the endpoint of the first: the others follow at the ports behind it",
			"the stream at %s is another rank's: %s", r.source.Endpoint, r.link.said.reason)
	}
	if stats.Batches > 0 {
		return fail("see that "+r.source.Endpoint+" is this engine's own publisher, and no other engine's",
			"batches came, and none was of the prompt that this engine computed")
	}
	return fail("see that the model's layers allow prefix caching, and that its events are of tier GPU",
		"batches came, and none with blocks of the test prompt")
}

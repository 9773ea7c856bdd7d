package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"tandem/internal/config"
)

// eventChecks are those of a rank's event stream.
func eventChecks() []check {
	const lost = "Only its events tell what an engine has cached. Without them Tandem guesses from what it " +
		"sent there itself: it does not see what was evicted, what went with a " +
		"restart, nor what other routers sent."
	return []check{
		{
			id: "events-disabled", title: "block events are on", trouble: "its block events are not followed",
			rank: eventsOn, why: lost,
		},
		{
			id: "publisher-null", title: "they are published over ZMQ", trouble: "its events are published nowhere",
			rank: publisherZMQ, needs: []string{"events-disabled"}, why: lost,
		},
		{
			id: "wrong-bind", title: "the publisher binds an address that others can reach",
			trouble: "the publisher is nowhere that others can reach", rank: bindsWell,
			needs: []string{"events-disabled", "publisher-null"},
			why: "vLLM binds an endpoint only if * or :: is in it and connects to any other: nobody listens then, " +
				"and the engine logs nothing. An address of the loopback is " +
				"there for its own machine only.",
		},
		{
			id: "port-collision", title: "its addresses are its own", trouble: "one address stands for two streams",
			rank: portsApart, needs: []string{"events-disabled", "publisher-null"},
			why: "vLLM adds the data-parallel rank to the ports of events and of replay: ports next to each other " +
				"meet. Two replicas at one address are one stream, and one " +
				"of them is credited with the other's blocks.",
		},
		{
			id: "events-unreachable", title: "its events can be subscribed to",
			trouble: "its events cannot be subscribed to", rank: canSubscribe,
			needs: []string{"events-disabled", "publisher-null", "wrong-bind", "port-collision"},
			why:   lost,
		},
		{
			id: "heartbeat-missing", title: "its publisher answers heartbeats",
			trouble: "its publisher does not answer heartbeats", rank: heartbeats,
			needs: []string{"events-unreachable"},
			why: "Tandem pings the publisher to notice a machine that is gone without a word; where no answer " +
				"comes, it takes the stream for dead again and again.",
		},
		{
			id: "wrong-topic", title: "its topic is the one that Tandem subscribes to",
			trouble: "Tandem subscribes to another topic", rank: topicFits, needs: []string{"events-unreachable"},
			why: "A subscriber of another topic is connected and gets nothing: it looks like an idle engine.",
		},
		{
			id: "events-silent", title: "a prompt's blocks are announced",
			trouble: "a prompt's blocks are not announced", rank: announced, sends: true,
			needs: []string{"test-prompt", "prefix-caching-off", "events-unreachable"},
			why:   lost,
		},
		{
			id: "replay-missing", title: "it can replay events", trouble: "it cannot replay events", rank: replayThere,
			needs: []string{"events-unreachable"},
			why: "After a start or a lost message Tandem knows only of blocks stored since; without replay every " +
				"hiccup of the network empties the index of this replica.",
		},
		{
			id: "replay-silent", title: "it does replay them", trouble: "its replay does not come, or not whole",
			rank: replayAnswers, needs: []string{"replay-missing"},
			why: "A replay that does not come is waited for, and then it is as if there were none: a start or a " +
				"lost message empties the index of this replica.",
		},
		{
			id: "replay-short", title: "its replay goes back far enough",
			trouble: "its replay does not go back far enough", rank: replayWhole, needs: []string{"replay-silent"},
			why: "Blocks stored before the replay buffer begins, and still cached, are unknown after a start of " +
				"Tandem: prompts go elsewhere and are computed again.",
		},
		{
			id: "block-size", title: "block sizes agree", trouble: "block sizes differ", rank: sizesAgree,
			why: "Keys of blocks of another size match nothing. Tandem goes by the events, then by /metrics, then " +
				"by the configuration; where they differ, one is of another engine or out of date.",
		},
		{
			id: "hash-domain", title: "the index predicts what the engine delivers",
			trouble: "the index does not predict what the engine delivers", rank: predictionHolds, sends: true,
			needs: []string{"test-prompt", "prefix-caching-off", "wrong-topic", "events-silent", "block-size"},
			why: "Prompts are sent where the index sees their prefix. Where it is wrong, they go to an engine " +
				"that has it not, and the right one stays idle.",
		},
		{
			id: "salt-domain", title: "salted prompts are kept apart", trouble: "salted prompts are not kept apart",
			rank: saltsApart, sends: true, needs: []string{"hash-domain"},
			why: "A cache salt separates tenants. An engine whose events do not carry it makes the index promise " +
				"one tenant's blocks to another; the engine denies them.",
		},
		{
			id: "clock-skew", title: "its clock agrees with ours", trouble: "its clock differs from ours",
			rank: clocksAgree,
			why: "The lag of the index since the engine's time stamp (tandem_index_lag_seconds, from=\"event\") is " +
				"off by the difference. Nothing else depends on it.",
		},
	}
}

// publish is the flag that makes an engine publish.
const publish = `start the engine with --kv-events-config '{"enable_kv_cache_events":true,` +
	`"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657"}'`

// where writes the configuration line for an engine that does not tell where it publishes.
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

func eventsOn(r *rank) verdict {
	s := r.s
	switch {
	case s.pool.Index == config.IndexApproximate:
		return fine("%s.index is approximate: by choice, nobody is listened to", s.poolPath()).andStop()
	case !s.follows():
		return warn("remove the line, or write "+s.poolPath()+".index: events",
			"the configuration has %s.index: %s", s.poolPath(), s.pool.Index).andStop()
	case r.own:
		return fine("by the configuration, at %s", r.source.Endpoint)
	case r.told != nil && r.told.Enabled:
		return fine("by /kv_event_sources, at %s", r.told.Endpoint)
	case s.seen.told != nil:
		return fail(publish,
			"/kv_event_sources names no stream of this rank: events are off, or the publisher is null")
	case s.seen.sourceStatus == http.StatusNotFound:
		return fail("if it publishes, say where: "+
			s.where("tcp://"+s.host+":5557", "tcp://"+s.host+":5657", "")+"; if not, "+publish,
			"vLLM %s has no /kv_event_sources to ask, and the configuration names no endpoint", orUnknown(
				s.seen.version,
			))
	}
	return fail("let GET /kv_event_sources through to the engine, or say where it publishes: "+
		s.where("tcp://"+s.host+":5557", "tcp://"+s.host+":5657", ""),
		"GET /kv_event_sources got no answer that can be read (status %d)", s.seen.sourceStatus)
}

func orUnknown(version string) string {
	if version == "" {
		return "of unknown version"
	}
	return version
}

func publisherZMQ(r *rank) verdict {
	switch {
	case r.told == nil:
		return fine("taken from the configuration")
	case r.told.Publisher != "zmq":
		return fail(`write "publisher":"zmq": `+publish, "the engine says that its publisher is %q",
			r.told.Publisher)
	}
	return fine("the engine says zmq")
}

// bindsWell goes by what was seen before it goes by vLLM's rule (ZmqEventPublisher._is_bind_endpoint): an
// address with a publisher behind it is good.
func bindsWell(r *rank) verdict {
	if r.told == nil {
		return fine("taken from the configuration")
	}
	there := r.link != nil && r.link.err == nil
	far := !loopback(r.s.host)
	switch e := r.told.Endpoint; {
	case far && loopback(hostOf(r.source.Endpoint)) && !r.own:
		return fail(publish, "the engine publishes at %s, which only its own machine %s can reach", e, r.s.host)
	case far && r.told.Replay != "" && loopback(hostOf(r.source.Replay)) && !r.own:
		return fail(publish, "the engine replays at %s, which only its own machine %s can reach",
			r.told.Replay, r.s.host)
	case there:
		return fine("a publisher is there")
	case !strings.HasPrefix(e, "tcp://"):
		return fail(publish, "the engine publishes at %s, which cannot be reached over a network", e)
	case !strings.Contains(e, "*") && !strings.Contains(e, "::"):
		return fail(publish, "the engine's endpoint is %s, to which vLLM connects instead of listening there", e)
	}
	return fine("%s", r.told.Endpoint)
}

func hostOf(endpoint string) string {
	host, _, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return ""
	}
	return host
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// portsApart compares the rank's addresses with each other and with everybody else's.
func portsApart(r *rank) verdict {
	mine := []string{r.source.Endpoint, r.source.Replay}
	if mine[0] != "" && mine[0] == mine[1] {
		return fail("give the replay endpoint a port of its own", "events and replay are both at %s", mine[0])
	}
	for _, s := range r.s.fleet.servers {
		for _, o := range s.ranks {
			if s.url == r.s.url && o.n == r.n {
				continue // itself, perhaps in the other pool
			}
			for _, at := range []string{o.source.Endpoint, o.source.Replay} {
				if at != "" && slices.Contains(mine, at) {
					return fail("leave more ports between events and replay than there are ranks (5557 and 5657), and "+
						"give every engine of a machine its own", "%s is also an address of %s", at, o.name())
				}
			}
		}
	}
	return fine("%s", strings.Join(slices.DeleteFunc(mine, func(at string) bool { return at == "" }), ", "))
}

func canSubscribe(r *rank) verdict {
	if r.link == nil {
		return skip("there is no address to connect to")
	}
	if r.link.err == nil {
		return fine("subscribed to every topic at %s", r.source.Endpoint)
	}
	return r.cannot("events", r.source.Endpoint, r.link.err)
}

// cannot explains a connection that failed.
func (r *rank) cannot(what, endpoint string, err *linkError) verdict {
	switch {
	case err.layer == atAddress:
		return fail("write an address as tcp://HOST:PORT", "%s at %s: %v", what, endpoint, err)
	case err.layer == atSocket:
		return fail("exchange the two addresses: events come from a PUB socket, replays from a ROUTER",
			"%s at %s: %v", what, endpoint, err)
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

func heartbeats(r *rank) verdict {
	if r.link.pong {
		return fine("pinged and answered")
	}
	return warn("see that nothing between Tandem and the publisher speaks for it; libzmq 4.2 and newer answers",
		"no answer to a ZMTP ping in %v", pongTime)
}

// topics are those that batches were seen with, live or replayed, of a quiet engine that which it tells.
func (r *rank) topics() (seen []string, told bool) {
	for _, t := range r.link.heard.topics {
		seen = note(seen, t, maxTopics)
	}
	if r.replay != nil {
		for _, t := range r.replay.heard.topics {
			seen = note(seen, t, maxTopics)
		}
	}
	if len(seen) == 0 && r.told != nil {
		return []string{r.told.Topic}, true
	}
	return seen, false
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
	t := r.trial
	switch {
	case t.depth > 0:
		return fine("%s of the test prompt", plural(t.depth, "block"))
	case t.late > 0:
		return warn(
			"look whether the engine, or the way to it, is overloaded: it announces a block before it answers",
			"the blocks of the test prompt came, but later than %v after the answer", eventTime,
		)
	case r.link.heard.unread > 0:
		return fail("see that the endpoint is vLLM's and not another publisher's; report it if it is",
			"%s came, of which %d cannot be read", plural(r.link.heard.batches, "batch"), r.link.heard.unread)
	case r.link.heard.batches > 0: // whose blocks they are is another question
		return fine("%s came by", plural(r.link.heard.batches, "batch"))
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

func replayAnswers(r *rank) verdict {
	p := r.replay
	switch {
	case p.err != nil:
		return r.cannot("replay", r.source.Replay, p.err)
	case p.silent != nil:
		return fail("look whether the engine hangs or is overloaded; replays are sent by its publisher's thread, "+
			"between two live batches",
			"the replay at %s stopped after %s without an end marker: %v", r.source.Replay, plural(p.heard.batches,
				"batch"), p.silent)
	case p.holes > 0:
		return warn("let Tandem's machine read faster, or lower buffer_steps: the engine's socket drops replies "+
			"beyond a thousand that wait", "%s missing in the middle of the replay",
			plural(p.holes, "batch"))
	}
	return fine("%s in %s", plural(p.heard.batches, "batch"), short(p.took))
}

// replayWhole compares what the replay tells of with what the cache can hold: a buffer that has turned over
// more blocks than the cache holds has forgotten nothing that matters, or little.
func replayWhole(r *rank) verdict {
	p := r.replay
	capacity := r.s.seen.scrape.Ranks[r.n].Cache.Blocks
	what := fmt.Sprintf("it begins with batch %d and tells of %s stored in %s",
		p.first, plural(p.heard.stored, "block"), short(p.span))
	switch {
	case p.heard.batches == 0 || p.first == 0:
		return fine("it goes back to the engine's start")
	case capacity > 0 && p.heard.stored >= capacity:
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
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// sizesSeen are the block sizes of events, the test prompt's own alone where it was announced.
func (r *rank) sizesSeen() []int {
	var all []int
	if r.trial != nil && r.trial.size > 0 {
		return []int{r.trial.size}
	}
	if r.link != nil {
		all = append(all, r.link.heard.sizes...)
	}
	if r.replay != nil {
		for _, n := range r.replay.heard.sizes {
			all = note(all, n, maxSizes)
		}
	}
	return all
}

func sizesAgree(r *rank) verdict {
	events := r.sizesSeen()
	told := r.s.seen.scrape.Ranks[r.n].Cache.BlockSize
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

// predictionHolds compares what an index of Tandem's own, fed with the engine's events, promised for the
// second sending of the prompt with what the engine found in its cache then.
func predictionHolds(r *rank) verdict {
	t := r.trial
	if t.size == 0 {
		return r.notOurs()
	}
	promised, got := max(t.depth, t.late)*t.size, t.second.cached
	const lost = "look for lost events: tandem_events_gaps_total, tandem_events_lost_total"
	if n, room := r.copiesTold(); n > 2*room && room > 0 { // a block may be told by two names
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

// copiesTold returns how many blocks the rank must have by its events, and how many fit, 0 unknown.
func (r *rank) copiesTold() (told, room int) {
	if r.replay == nil || r.replay.holes > 0 {
		return 0, 0
	}
	return r.replay.heard.held(), r.s.seen.scrape.Ranks[r.n].Cache.Blocks
}

// notOurs explains a stream that does not tell of the prompt.
func (r *rank) notOurs() verdict {
	for _, s := range r.s.fleet.servers {
		for _, o := range s.ranks {
			if o != r && o.trial != nil && learnSize(r.link.kept, o.trial.prompt) > 0 {
				return fail("exchange the addresses in the configuration: "+r.s.poolPath()+".replicas[].events.endpoint",
					"the stream at %s tells of what was sent to %s", r.source.Endpoint, o.name())
			}
		}
	}
	if named := r.link.heard.ranks; len(named) > 0 && !slices.Contains(named, r.n) {
		return fail("with several ranks, write the endpoint of the first: the others follow at the ports behind it",
			"the stream at %s is of rank %s, not of %d", r.source.Endpoint, list(named), r.n)
	}
	if len(r.link.kept) > 0 {
		return fail("see that "+r.source.Endpoint+" is this engine's own publisher, and no other engine's",
			"batches came, and none was of the prompt that this engine computed")
	}
	return fail("see that the model's layers allow prefix caching, and that its events are of tier GPU",
		"batches came, and none with blocks of the test prompt")
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
	var off time.Duration // the engine's clock minus ours
	switch limit := skewByEvents; {
	case r.link != nil && r.link.err == nil && r.link.stamped:
		off = -r.link.lag
		if off < -limit || off > limit {
			return warn(do, "its newest batch is stamped %s", aside(off))
		}
		return fine("a batch is stamped %s", aside(off))
	case !r.s.seen.date.IsZero():
		off = r.s.seen.date.Sub(r.s.seen.heard)
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

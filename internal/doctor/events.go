package doctor

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/setup"
)

// eventChecks are the checks of a rank's event stream.
//
// Long: a row a check.
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
			id: "wrong-topic", title: "its topic is the one that Tandem subscribes to",
			trouble: "Tandem subscribes to another topic", rank: topicFits, needs: []string{"events-unreachable"},
			why: "A subscriber of another topic is connected and gets nothing: it looks like an idle engine.",
		},
		{
			id: "events-silent", title: "a prompt's blocks are announced",
			trouble: "a prompt's blocks are not announced", rank: announced, sends: true,
			needs: []string{"test-prompt", "prefix-caching-off", "events-unreachable"},
			why: "Only events tell what an engine has cached. When they stop, Tandem believes the last ones for " +
				"about ten seconds. When several prompts have shown that nothing is announced, Tandem believes " +
				"nothing of this replica.",
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

// publish is the remedy for an engine that publishes nothing.
const publish = "start the engine with " + setup.Publish

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
	}
	t, _ := r.trouble(setup.NoEvents)
	switch {
	case s.seen.sources.told != nil:
		return fail(t.Do,
			"/kv_event_sources names no stream of this rank: events are off, or the publisher is null")
	case s.seen.sources.sourceStatus == http.StatusNotFound:
		return fail(t.Do,
			"vLLM %s has no /kv_event_sources to ask, and the configuration names no endpoint", orUnknown(
				s.seen.version,
			))
	}
	return fail("let GET /kv_event_sources through to the engine, or say where it publishes: "+
		s.where("tcp://"+s.host+":5557", "tcp://"+s.host+":5657", ""),
		"GET /kv_event_sources got no answer that can be read (status %d)", s.seen.sources.sourceStatus)
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

// bindsWell trusts evidence more than vLLM's rule (ZmqEventPublisher._is_bind_endpoint): an address with a
// publisher is good.
func bindsWell(r *rank) verdict {
	if r.told == nil {
		return fine("taken from the configuration")
	}
	there := r.link != nil && r.link.err == nil && r.link.connected()
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

// portsApart compares the rank's addresses with each other and with all others.
func portsApart(r *rank) verdict {
	mine := []string{r.source.Endpoint, r.source.Replay}
	if mine[0] != "" && mine[0] == mine[1] {
		return fail("give the replay endpoint a port of its own", "events and replay are both at %s", mine[0])
	}
	for _, s := range r.s.fleet.servers {
		for _, o := range s.ranks {
			if s.url == r.s.url && o.n == r.n {
				continue // the rank itself, perhaps in the other pool
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

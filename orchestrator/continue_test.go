package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

var cutStream = fault(enginesim.Fault{Kind: "cut_stream", After: 4})

// brokenStreams are tests in which engines break off in the middle of a greedy answer.
var brokenStreams = []story{
	{
		name: "the stream is cut", orders: sequential, stream: streamed,
		at: map[string]trouble{"decode": cutStream},
	},
	{
		name: "the stream is cut everywhere", orders: sequential, stream: streamed,
		at: map[string]trouble{"decode": cutStream}, always: true, code: 502, kind: "broken",
	},
	{
		name: "the stream goes silent", orders: sequential, stream: streamed,
		at:   map[string]trouble{"decode": fault(enginesim.Fault{Kind: "stall_stream", After: 4})},
		took: 4*time.Second + normal, within: 600 * time.Millisecond,
	},
	{
		name: "an error in the stream", orders: sequential, stream: streamed,
		at: map[string]trouble{"decode": fault(enginesim.Fault{Kind: "fail_stream", After: 4})},
	},
	{
		name: "the stream of a chat is cut, and no other engine takes ids", orders: concurrent, stream: streamed,
		at: map[string]trouble{"decode": cutStream}, code: 502, kind: "broken",
	},
	{
		name: "all decode replicas vanish in the stream", orders: sequential, stream: streamed, code: 502,
		kind: "broken", expires: true,
		at: map[string]trouble{"third event": decodesGone},
	},
	{
		name: "the client leaves during the pause", orders: sequential, stream: streamed, code: clientGone,
		kind: "client_gone", back: 1,
		at: map[string]trouble{"decode": cutStream, "continue": later(5*time.Millisecond, leave)},
	},
}

func TestBrokenStreamsGoOn(t *testing.T) { tellAll(t, brokenStreams, nil) }

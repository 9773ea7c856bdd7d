// Package kvevents follows the KV cache events of one engine: it decodes what every vLLM version sends,
// notices lost batches and restarts, and replays.
//
// The path of a batch: follow.go receives the batch. track.go decides from its sequence number whether it is
// next, old, or beyond a gap. decode.go reads the batch, event.go each event, and fields.go the fields. The
// [Sink] then gets the batch. resync.go has the replays and audits, redial.go the waits between connections,
// and lag.go how late the sink is. encode.go and publish.go are the engine's side, for the simulator and for
// tests. http.go reads the events of engines that would send them over HTTP.
package kvevents

import (
	"strconv"

	"github.com/tandem-router/tandem/internal/kv"
)

// Source names one engine's event stream: one data-parallel rank, which has sequence numbers of its own.
type Source struct {
	Endpoint string // ZMQ address of the PUB socket, dialable: "tcp://10.0.0.7:5557", no wildcard
	Replay   string // ZMQ address of the replay ROUTER, "" if the engine has none
	Topic    string // prefix of the topics to receive, "" for all
	Rank     int    // data-parallel rank, of batches that do not say theirs; others are refused
	Only     bool   // the engine has one rank, with any number
}

// Sink takes what a [Follower] learns. All its methods are called from the goroutine in [Follower.Run], one
// at a time, and hold up the stream while they run.
type Sink interface {
	// Apply takes the next batch. Batches come in the engine's order, each once since the last Forget. b and all
	// it holds are reused when Apply returns.
	Apply(b *kv.Batch)
	// Forget says that everything applied so far is void: the engine restarted, or batches were lost for good.
	Forget(reason string)
	// State says how far the engine's blocks as applied can be believed from now on. Called at changes only.
	State(s State, reason string)
}

// Restart begins the reason that [Sink.Forget] is given where another process is behind the stream than
// before.
const Restart = "engine restarted: "

// State is how far a follower's picture of an engine can be believed.
type State uint8

// The states of a stream.
//
//	        connected                     replay done
//	Stale ------------> Syncing ----------------------------> Live
//	  ^                    ^                                    |
//	  |                    '------ gap or restart noticed ------'
//	  '--- connection lost; or a gap that replay could not fill (then Forget, and on to Live)
//
// Live may still know less than the engine holds (its replay buffer is finite), but nothing the engine has
// said to be gone.
const (
	Syncing State = iota
	Live
	Stale
)

func (s State) String() string {
	switch s {
	case Syncing:
		return "syncing"
	case Live:
		return "live"
	case Stale:
		return "stale"
	}
	return "state(" + strconv.Itoa(int(s)) + ")"
}

// Package discovery keeps the members of the pools, and the other routers, that are found outside the
// configuration file.
//
// A [Source] finds them. A [Set] runs the sources, joins what they found with the file, and tells what
// failed. The rules hold for every source:
//
//   - The file wins. A found replica that the file has in the same pool is the file's. Of two found replicas
//     with one URL the one that was found newly wins over one that is only remembered.
//   - A source gives a name to a replica if it knows one that stays when the engine moves. Every router finds
//     the same names. A name that is taken or cannot be one is dropped: the replica goes by host:port.
//   - A replica that contradicts another one, such as the same engine in both pools, is left out and logged.
//   - A source that fails keeps what it found last: a bad answer never empties a pool. A source that cannot
//     tell an empty answer from a bad one, as DNS, takes it for bad.
//   - A question that has no answer yet takes nothing away: what a reload would remove from its pool stays
//     until then. To a question that a reload asks newly, an empty answer is none.
//   - Members that an earlier process found serve until their question is answered, and longer if the
//     questions have changed meanwhile: see [Set.Remember].
//   - A replica that is not found any more leaves as one that was taken out of the file: its running requests
//     end.
//
// A second source implements [Source] and stands beside the first one in orchestrator.Sources. Its settings
// are a struct in config.Discovery. Nothing else has to change.
package discovery

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// Source finds members. Its methods may be called from any goroutine, and none but Run blocks.
type Source interface {
	// Found returns an answer to each question of cfg, in the order of cfg. cfg need not be in force: a question
	// that was never asked is Waiting.
	Found(cfg *config.Config) []Found
	// Configure puts cfg in force. Answers to questions that are also in cfg are kept.
	Configure(cfg *config.Config)
	// Run asks the questions of the configuration in force until ctx ends. When Found begins to return something
	// else, it calls changed, which does not block.
	Run(ctx context.Context, changed func())
}

// Found is the newest answer to one question.
type Found struct {
	config.Members // none while Waiting
	State          State
	Err            string    // why it is not Fresh; "" before the first question
	Since          time.Time // when the state began; if Remembered, when a router last used the members
	Left           []string  // what people should check, such as unusable members and the reason; for the log
}

// State says how far an answer can be trusted.
type State uint8

// Waiting is the zero State.
const (
	Waiting    State = iota // no server has answered yet
	Fresh                   // the newest question was answered
	Held                    // the newest question failed, and the last answer is kept
	Remembered              // no server has answered yet, and an earlier process knew these members
)

// String returns the word for people and metrics.
func (s State) String() string { return [...]string{"waiting", "fresh", "held", "remembered"}[s] }

// asked reports whether a server has answered, or a question has failed.
func (f *Found) asked() bool { return f.State == Fresh || f.State == Held || f.Err != "" }

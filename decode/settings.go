package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// Settings are the operator's settings of the pool. They have no defaults: see [Pool.Configure].
type Settings struct {
	// of every member, with local prefills, until measured; a zero half: the profile's
	Speed          estimate.Speed
	LoadTTL        time.Duration // older load reports are ignored; above 0
	Margin         float64       // share of a member's blocks that is never promised, 0..1
	Piece          time.Duration // length of a piece of a local prefill beside streams; 0: whole prompts
	ExpectedOutput int           // assumed tokens of an answer, until learned; at least 1
	OutputDoubt    float64       // factor by which answers may be longer, until learned; up to 1: no doubt
	Learning       Learning
}

// Learning is how many more observations than usual have to be made before they count. Production sets none.
// The laboratory sets more than a play brings, and so measures what learning is worth.
type Learning struct {
	Samples int     // of a speed
	Answers float64 // of a length
}

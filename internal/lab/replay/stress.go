package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Stress are changes that make recorded traffic hard. The zero Stress changes nothing.
type Stress struct {
	Hot   bool // three requests in ten begin with the same 20,000 tokens
	Flood bool // no two sessions have a block in common
	Surge bool // for a minute sessions start at twice the rate
}

// The measures of a stress.
const (
	hotShare  = 0.3
	hotTokens = 20_000
	hotPrompt = 0x686f74 // id of its first block
	surgeFor  = time.Minute
	surgeAt   = 5 * time.Minute // if the length of the play is unknown
)

// ParseStress reads names, separated by commas: hot, flood, surge.
func ParseStress(text string) (s Stress, err error) {
	for name := range strings.SplitSeq(text, ",") {
		switch name {
		case "":
		case "hot":
			s.Hot = true
		case "flood":
			s.Flood = true
		case "surge":
			s.Surge = true
		default:
			return s, fmt.Errorf("no stress %q: want hot, flood or surge", name)
		}
	}
	return s, nil
}

// rename changes which blocks the prompts of the number-th session share with others.
func (s Stress) rename(x *trace.Session, number int, rnd *rand.Rand) {
	if s.Flood {
		x.Unshare(uint64(number))
	}
	if s.Hot && rnd.Float64() < hotShare {
		x.Lead(hotPrompt, hotTokens)
	}
}

// time returns the start of a session under a surge, from its start in a play of length span (0: the whole
// trace). The sessions of two minutes in the middle start within one minute. All later sessions start one
// minute earlier.
func (s Stress) time(at, span time.Duration) time.Duration {
	if !s.Surge {
		return at
	}
	from := surgeAt
	if span > 0 {
		from = max(0, span-surgeFor) / 2
	}
	return at - min(max(0, at-from), 2*surgeFor)/2
}

package roster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// Guess is a prompt that a router has sent to a replica. The router tells other routers about the prompt, so
// that they count its blocks before the replica's events announce them.
type Guess struct {
	ID     replica.ID    `json:"id"`
	Keys   Keys          `json:"keys"`      // of the prompt's blocks from the first on; must not be changed
	Within time.Duration `json:"within_ns"` // they should be computed
}

const (
	mostGuessed = 1 << 14         // blocks of a guess from another router: a prompt of 256k tokens
	mostWithin  = 5 * time.Minute // that it may take
)

// Plausible reports whether g can be true.
func (g *Guess) Plausible() bool {
	return g.ID != "" && len(g.Keys) > 0 && len(g.Keys) <= mostGuessed && g.Within >= 0 && g.Within <= mostWithin
}

// Keys are keys that JSON writes as one text of base64: they are many, and numbers would take twice as much.
type Keys []kv.Key

// MarshalJSON implements [json.Marshaler].
func (ks Keys) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 8*len(ks))
	for _, k := range ks {
		b = binary.LittleEndian.AppendUint64(b, uint64(k))
	}
	return json.Marshal(b)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (ks *Keys) UnmarshalJSON(data []byte) error {
	var b []byte
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	if len(b)%8 != 0 {
		return errors.New("keys are eight bytes each")
	}
	*ks = make(Keys, 0, len(b)/8)
	for ; len(b) > 0; b = b[8:] {
		*ks = append(*ks, kv.Key(binary.LittleEndian.Uint64(b)))
	}
	return nil
}

// keptGuesses is the number of newest guesses that other routers can fetch. If more guesses are made between
// two fetches, the oldest are lost.
const keptGuesses = 64

// guessLog is the newest guesses of this router since the first fetch by another router: a single router
// keeps none. Safe for concurrent use.
type guessLog struct {
	asked atomic.Bool

	mu   sync.Mutex // guards the following
	ring [keptGuesses]Guess
	next uint64 // number of the next one
}

func (l *guessLog) add(g Guess) {
	if len(g.Keys) > mostGuessed {
		g.Keys = g.Keys[:mostGuessed]
	}
	g.Within = min(max(g.Within, 0), mostWithin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring[l.next%keptGuesses] = g
	l.next++
}

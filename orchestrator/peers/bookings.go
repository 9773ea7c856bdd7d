package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
)

// Path is where a router serves its bookings to other routers.
const Path = "/routers/bookings"

// answerLimit limits the bytes of an answer. Thousands of replicas need much less.
const answerLimit = 4 << 20

// bookings is a router's answer to all others. Unknown fields are from a newer version and are ignored.
type bookings struct {
	Instance string             `json:"instance"` // of the answering process, drawn at its start
	Prefill  []prefill.PeerLoad `json:"prefill"`
	Decode   []decode.PeerLoad  `json:"decode"`
	Guesses  guesses            `json:"guesses,omitzero"`
	// The engine processes that may have cached wrong blocks, as far as the router knows. A router of an older
	// version reports none.
	Distrusted []replica.Distrust `json:"distrusted,omitempty"`
	Uses       uses               `json:"uses,omitzero"`
}

// guesses are the prompts that a router has sent to replicas since its last report. Other routers count the
// prompts' blocks before the replicas' events announce them.
type guesses struct {
	Prefill []prefill.Guess `json:"prefill,omitempty"`
	Decode  []decode.Guess  `json:"decode,omitempty"`
	From    guessed         `json:"from,omitzero"` // what the next ones are
}

// guessed holds, for each pool, the number of the next guess that another router has not received yet.
type guessed struct {
	Prefill uint64 `json:"prefill,omitzero"`
	Decode  uint64 `json:"decode,omitzero"`
}

// guessesFrom returns the guesses of this router from these numbers on.
func (ps *Peers) guessesFrom(from guessed) (gs guesses) {
	gs.Prefill, gs.From.Prefill = ps.opt.Prefill.Guesses(from.Prefill)
	gs.Decode, gs.From.Decode = ps.opt.Decode.Guesses(from.Decode)
	return gs
}

// usesSince returns what keys use at this router.
func (ps *Peers) usesSince(since uint64, now time.Time) (u uses) {
	u.Keys, u.Version = ps.opt.Keys.Uses(since, now)
	u.All = since == 0
	return u
}

// usesFor returns the uses that the asking router has not received. A router of an older version asks for
// none.
func (ps *Peers) usesFor(r *http.Request, now time.Time) uses {
	since, err := strconv.ParseUint(r.URL.Query().Get(usesQuery), 10, 64)
	if err != nil {
		return uses{}
	}
	return ps.usesSince(since, now)
}

// hearUses counts the use of keys at another router.
func (ps *Peers) hearUses(b *bookings, now time.Time, patience time.Duration) {
	ps.opt.Keys.Hear(b.Instance, b.Uses.Keys, b.Uses.All, now, max(patience, usesPatience))
}

// plausible reports whether all of gs can be true.
func (gs *guesses) plausible() bool {
	cannot := func(g prefill.Guess) bool { return !g.Plausible() }
	return !slices.ContainsFunc(gs.Prefill, cannot) && !slices.ContainsFunc(gs.Decode, cannot)
}

// query returns the query by which an asking router says which guesses it has.
func (g guessed) query() string { return fmt.Sprintf("?prefill=%d&decode=%d", g.Prefill, g.Decode) }

// guessedOf returns which guesses an asking router has. Without numbers in the query, the router is of an
// older version that accepts no guesses. guessedOf then returns numbers that no guess reaches.
func guessedOf(r *http.Request) (g guessed) {
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(r.URL.Query().Get(name), 10, 64)
		if err != nil {
			return math.MaxUint64
		}
		return n
	}
	return guessed{number("prefill"), number("decode")}
}

// ServeHTTP answers another router with this router's bookings.
func (ps *Peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	body, err := json.Marshal(bookings{
		Instance: ps.instance, Prefill: ps.opt.Prefill.PeerLoads(now), Decode: ps.opt.Decode.PeerLoads(now),
		Guesses: ps.guessesFrom(guessedOf(r)), Distrusted: ps.opt.Distrusts.Distrusted(),
		Uses: ps.usesFor(r, now),
	})
	w.Header().Set("Content-Type", "application/json")
	if id := r.Header.Get("X-Request-Id"); id != "" { // so the asking router keeps its connection
		w.Header().Set("X-Request-Id", id)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		body, _ = json.Marshal(map[string]string{"error": err.Error()}) // two strings can always be written as JSON
	}
	_, _ = w.Write(body)
}

var (
	errBookings = errors.New("not the bookings of a router")
	errGuess    = fmt.Errorf("%w: a prompt that cannot be", errBookings)
	errDistrust = fmt.Errorf("%w: an engine process that cannot be", errBookings)
	errUse      = fmt.Errorf("%w: a use of a key that cannot be", errBookings)
	errLoad     = fmt.Errorf("%w: a replica appears twice, or has an impossible number", errBookings)
)

// readBookings parses a whole answer, or returns an error.
func readBookings(body []byte) (*bookings, error) {
	b := &bookings{}
	if err := json.Unmarshal(body, b); err != nil {
		return nil, fmt.Errorf("%w: %.200s", errBookings, err.Error())
	}
	return b, b.check()
}

// check returns why b cannot be the bookings of a router; nil if it can.
func (b *bookings) check() error {
	if b.Instance == "" || len(b.Instance) > 64 {
		return fmt.Errorf("%w: no instance", errBookings)
	}
	prefills, decodes := map[replica.ID]bool{}, map[replica.ID]bool{}
	for i := range b.Prefill {
		s := &b.Prefill[i]
		if prefills[s.ID] || !s.Plausible() {
			return errLoad
		}
		prefills[s.ID] = true
	}
	for i := range b.Decode {
		s := &b.Decode[i]
		if decodes[s.ID] || !s.Plausible() {
			return errLoad
		}
		decodes[s.ID] = true
	}
	if !b.Guesses.plausible() {
		return errGuess
	}
	if len(b.Uses.Keys) > keys.MostUses ||
		slices.ContainsFunc(b.Uses.Keys, func(u keys.Use) bool { return !u.Plausible() }) {
		return errUse
	}
	if slices.ContainsFunc(b.Distrusted, func(d replica.Distrust) bool { return !d.Plausible() }) {
		return errDistrust
	}
	return nil
}

// addAge makes each report older by the longest time that the answer can have been on its way. So no report
// seems younger than it is.
func (b *bookings) addAge(by time.Duration) {
	for i := range b.Prefill {
		if r := b.Prefill[i].Report; r != nil {
			r.Age += by
		}
	}
	for i := range b.Decode {
		if r := b.Decode[i].Report; r != nil {
			r.Age += by
		}
	}
	b.Uses.addAge(by)
}

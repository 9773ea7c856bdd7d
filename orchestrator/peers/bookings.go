package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tandem/decode"
	"tandem/internal/replica"
	"tandem/prefill"
)

// Path is where a router tells others what it has booked.
const Path = "/routers/bookings"

// answerLimit bounds the bytes of an answer. It is far more than thousands of replicas take.
const answerLimit = 4 << 20

// bookings is the answer of one router to all others. Fields that we do not know are those of a newer
// version, and left alone.
type bookings struct {
	Instance string             `json:"instance"` // of the process that answers, drawn when it starts
	Prefill  []prefill.PeerLoad `json:"prefill"`
	Decode   []decode.PeerLoad  `json:"decode"`
}

// ServeHTTP tells another router what this one has booked.
func (ps *Peers) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	body, err := json.Marshal(bookings{
		Instance: ps.instance, Prefill: ps.opt.Prefill.PeerLoads(now), Decode: ps.opt.Decode.PeerLoads(now),
	})
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		body, _ = json.Marshal(map[string]string{"error": err.Error()}) // two strings can always be written
	}
	_, _ = w.Write(body)
}

var (
	errBookings = errors.New("not the bookings of a router")
	errLoad     = fmt.Errorf("%w: a replica stands there twice, or has a number that cannot be", errBookings)
)

// readBookings takes an answer, all of it or nothing.
func readBookings(body []byte) (*bookings, error) {
	b := &bookings{}
	if err := json.Unmarshal(body, b); err != nil {
		return nil, fmt.Errorf("%w: %.200s", errBookings, err.Error())
	}
	if b.Instance == "" || len(b.Instance) > 64 {
		return nil, fmt.Errorf("%w: no instance", errBookings)
	}
	prefills, decodes := map[replica.ID]bool{}, map[replica.ID]bool{}
	for i := range b.Prefill {
		s := &b.Prefill[i]
		if prefills[s.ID] || !s.Plausible() {
			return nil, errLoad
		}
		prefills[s.ID] = true
	}
	for i := range b.Decode {
		s := &b.Decode[i]
		if decodes[s.ID] || !s.Plausible() {
			return nil, errLoad
		}
		decodes[s.ID] = true
	}
	return b, nil
}

// addAge makes each report older by the longest time that the answer can have been on its way, so that no
// report is taken for younger than it is.
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
}

package peers

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/prefill"
)

// message is a router's report to all others through a server. It has present bookings, like an answer to a
// question, and no differences to an earlier message. So the next message makes up for a lost one.
type message struct {
	bookings
	Whole bool          `json:"whole,omitzero"`   // has all replicas; otherwise only replicas with a change
	Left  bool          `json:"left,omitzero"`    // the router ends and has no bookings any more
	Sent  time.Duration `json:"sent_ns,omitzero"` // on the sender's clock, for its own messages
}

// readMessage parses a whole message, or returns an error.
func readMessage(body []byte) (*message, error) {
	if len(body) > answerLimit {
		return nil, fmt.Errorf("%w: %d bytes", errBookings, len(body))
	}
	m := &message{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %.200s", errBookings, err.Error())
	}
	return m, m.check()
}

// reported is what a router has reported about its replicas. So the next report needs only the replicas that
// have changed.
type reported struct {
	prefill []prefill.PeerLoad
	decode  []decode.PeerLoad
}

// news returns the part of now that is new compared with r. It is whole if the set of replicas has changed.
func (r *reported) news(now *reported) (fresh reported, whole bool) {
	p, ok := changed(r.prefill, now.prefill, samePrefill)
	d, also := changed(r.decode, now.decode, sameDecode)
	if !ok || !also {
		return *now, true
	}
	return reported{p, d}, false
}

func samePrefill(a, b *prefill.PeerLoad) (same, unchanged bool) { return a.ID == b.ID, !a.Changed(b) }

func sameDecode(a, b *decode.PeerLoad) (same, unchanged bool) { return a.ID == b.ID, !a.Changed(b) }

// changed returns the loads of now that differ from before; false if before has other replicas or another
// order.
func changed[S any](before, now []S, same func(a, b *S) (same, unchanged bool)) (out []S, ok bool) {
	if len(before) != len(now) {
		return nil, false
	}
	for i := range now {
		of, unchanged := same(&now[i], &before[i])
		if !of {
			return nil, false
		}
		if !unchanged {
			out = append(out, now[i])
		}
	}
	return out, true
}

package replica

import "strconv"

// Trust says how far the block index of a replica can be believed.
type Trust uint8

// The states of a replica's block events.
const (
	TrustUnknown Trust = iota // nothing heard yet
	Syncing                   // replay of the past is running
	Live                      // events arrive without a gap
	Stale                     // no connection, a silent publisher, or a gap that replay could not fill
	Off                       // nothing is indexed: no match is known, and none is missed
	Approximate               // no events are followed; the index knows what we sent there
)

func (t Trust) String() string {
	switch t {
	case TrustUnknown:
		return "unknown"
	case Syncing:
		return "syncing"
	case Live:
		return "live"
	case Stale:
		return "stale"
	case Off:
		return "off"
	case Approximate:
		return "approximate"
	}
	return "trust(" + strconv.Itoa(int(t)) + ")"
}

// MarshalText writes the name of t.
func (t Trust) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

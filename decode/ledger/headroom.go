package ledger

import (
	"math"
	"time"
)

// Headroom is the headroom of one replica at one moment, in blocks.
type Headroom struct {
	Capacity int  // 0 unknown: then nothing else is known
	Most     int  // that may ever be promised
	Used     int  // in use or promised, growth included
	Free     int  // may be promised; below zero if overbooked
	Reserved int  // asked for by reserved leases
	Guessed  bool // no fresh report: Used is the pool's mean, or our own account if that is more
}

// Room is a replica's blocks, and the facts about their use from elsewhere.
type Room struct {
	Capacity   int     // blocks, 0 unknown
	Margin     float64 // share of the blocks that is never promised, 0..1
	Usage      float64 // share in use by a fresh report, NaN if there is none
	MeanUsage  float64 // share that the replicas of the pool use on average; NaN unknown
	OthersGrow int     // blocks that requests which are not ours are expected to add
}

// Headroom works out the headroom of a replica. theirs is what other routers have booked there.
func (a *Account) Headroom(r Room, theirs *PeerLoad) Headroom {
	h := Headroom{Capacity: r.Capacity, Reserved: a.Reserved() + theirs.Reserved}
	h.Guessed = math.IsNaN(r.Usage)
	if h.Capacity == 0 {
		return h
	}
	if h.Guessed {
		h.Used = a.Held + theirs.Held
		if r.MeanUsage > 0 {
			h.Used = max(h.Used, int(r.MeanUsage*float64(h.Capacity)))
		}
	} else {
		unreported := a.Promised + a.Growth + a.absent.due + theirs.Promised + theirs.Growth
		h.Used = max(a.InUse(h.Capacity)+unreported+r.OthersGrow-a.returned-theirs.Returned, unreported, 0)
	}
	h.Most = h.Capacity - int(math.Ceil(min(max(r.Margin, 0), 1)*float64(h.Capacity)))
	h.Free = h.Most - h.Used
	return h
}

// InUse returns the blocks in use, out of capacity, by the report that is counted from.
func (a *Account) InUse(capacity int) int { return int(math.Round(a.usage * float64(capacity))) }

// Left returns the blocks that could be promised if all reserved leases had theirs.
func (h *Headroom) Left() int { return h.Free - h.Reserved }

// Asked returns the room that a request of the given blocks must find. A request larger than Most must find
// the replica empty.
func (h *Headroom) Asked(blocks int) int { return min(blocks, h.Most) }

// Fits reports whether a request of the given blocks may be admitted now.
func (h *Headroom) Fits(blocks int) bool { return h.Capacity == 0 || h.Free >= h.Asked(blocks) }

// MaxRoomWait is the longest time that is predicted for room.
const MaxRoomWait = time.Minute

// RoomIn returns the expected time until the given number of blocks, above 0, has come free. The running
// requests use all the room, and end after life seconds, evenly spread.
func (h *Headroom) RoomIn(blocks int, life float64) time.Duration {
	running := max(min(h.Used, h.Most), min(blocks, h.Most), 1)
	return seconds(min(life*float64(blocks)/float64(running), MaxRoomWait.Seconds()))
}

// Released returns the blocks that should have come free after so long, by the same reckoning.
func (h *Headroom) Released(within time.Duration, life float64) int {
	if within <= 0 || h.Used <= 0 {
		return 0
	}
	running := float64(min(h.Used, h.Most))
	return min(h.Used, int(running*within.Seconds()/life))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

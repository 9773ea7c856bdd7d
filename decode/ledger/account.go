package ledger

import (
	"math"
	"time"
)

// Account is the headroom of one replica at one moment, in blocks.
type Account struct {
	Capacity int  // 0 unknown: then nothing else is known
	Most     int  // that may ever be promised
	Used     int  // in use or promised, growth included
	Free     int  // may be promised; below zero if overbooked
	Reserved int  // asked for by reserved leases
	Guessed  bool // no fresh report: Used is the pool's mean, or our own account if that is more
}

// Room is what a replica has, and what is known of its use from elsewhere.
type Room struct {
	Capacity   int     // blocks, 0 unknown
	Margin     float64 // share of the blocks that is never promised, 0..1
	Usage      float64 // share in use by a fresh report, NaN if there is none
	MeanUsage  float64 // share that the replicas of the pool use on average; NaN unknown
	OthersGrow int     // blocks that requests which are not ours are expected to add
}

// Account works out the headroom of a replica. theirs is what other routers have booked there.
func (b *Book) Account(r Room, theirs *PeerLoad) Account {
	a := Account{Capacity: r.Capacity, Reserved: b.Reserved() + theirs.Reserved}
	a.Guessed = math.IsNaN(r.Usage)
	if a.Capacity == 0 {
		return a
	}
	if a.Guessed {
		a.Used = b.Held + theirs.Held
		if r.MeanUsage > 0 {
			a.Used = max(a.Used, int(r.MeanUsage*float64(a.Capacity)))
		}
	} else {
		unreported := b.Promised + b.Growth + b.absent.due + theirs.Promised + theirs.Growth
		a.Used = max(b.InUse(a.Capacity)+unreported+r.OthersGrow-b.returned-theirs.Returned, unreported, 0)
	}
	a.Most = a.Capacity - int(math.Ceil(min(max(r.Margin, 0), 1)*float64(a.Capacity)))
	a.Free = a.Most - a.Used
	return a
}

// InUse returns the blocks in use of so many, by the report that is counted from.
func (b *Book) InUse(capacity int) int { return int(math.Round(b.usage * float64(capacity))) }

// Left returns the blocks that could be promised if all reserved leases had theirs.
func (a *Account) Left() int { return a.Free - a.Reserved }

// Asked returns the room that a request of so many blocks has to find. A request that is larger than all that
// may ever be promised has to find the replica empty.
func (a *Account) Asked(blocks int) int { return min(blocks, a.Most) }

// Fits reports whether a request of so many blocks may be admitted now.
func (a *Account) Fits(blocks int) bool { return a.Capacity == 0 || a.Free >= a.Asked(blocks) }

// MaxRoomWait is the longest time that is predicted for room.
const MaxRoomWait = time.Minute

// RoomIn returns how long it should take until so many blocks, above 0, have come free: requests end after
// life seconds, evenly spread, as many at a time as have room.
func (a *Account) RoomIn(blocks int, life float64) time.Duration {
	running := max(min(a.Used, a.Most), min(blocks, a.Most), 1)
	return seconds(min(life*float64(blocks)/float64(running), MaxRoomWait.Seconds()))
}

// Released returns the blocks that should have come free after so long, by the same reckoning.
func (a *Account) Released(within time.Duration, life float64) int {
	if within <= 0 || a.Used <= 0 {
		return 0
	}
	running := float64(min(a.Used, a.Most))
	return min(a.Used, int(running*within.Seconds()/life))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

package planner

import (
	"errors"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// A request whose tenant is ahead of its share does not wait inside a decode replica for room: other tenants
// could not overtake it there. It waits at the router, until the room is near.
func TestATenantAheadWaitsForRoomAtTheRouter(t *testing.T) {
	f := newFleet(1, 1, func(r *replica.Replica) {
		if r.Role == replica.Decode {
			r.Facts.Blocks = 300
		}
	})
	f.says(f.decode, "d1", 10, 0, 1)
	r := f.request(1, 1000)
	booked := f.plan(t, r)
	room := seconds(booked.Decision.TTFT / 1000)
	booked.Release(f.now)
	r.MostAhead = 100 * time.Millisecond
	_, err := f.pl.Plan(r, f.now)
	full, ok := errors.AsType[*NoRoom](err)
	if !ok || full.Retry <= 0 || full.Retry > room {
		t.Fatalf("%v, want the request to wait for less than %v", err, room)
	}
	r.MostAhead = room
	f.plan(t, r).Release(f.now)
	r.MostAhead, r.Begun = 100*time.Millisecond, true
	f.plan(t, r).Release(f.now)
}

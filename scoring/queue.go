package scoring

// Queue is the prefill work that waits on one replica.
type Queue struct {
	Wait     float64 // seconds of work ahead
	Arrivals float64 // requests per second that come to the replica
	// Share of its time spent on prefills, 0..1, more if overbooked; used only if work waits.
	Rho float64
}

// A queue counts as lasting at most busyMost seconds: it is unknown whether requests keep coming at the same
// rate for longer. It also counts as lasting at most busyTimes as long as its work, because Rho is known to
// one part in busyTimes at best.
const (
	busyMost  = 10
	busyTimes = 20
)

// Crowding returns the total delay of all requests for each second of work added to q, that second included.
// Each request that comes before the queue is empty waits one second longer. These are the requests of the
// next Wait/(1-Rho) seconds, because new requests make the queue last longer. On an idle replica the result
// is 1, however busy the replica was before.
func (q Queue) Crowding() float64 {
	if !(q.Arrivals*q.Wait > 0) {
		return 1
	}
	idle := max(1-max(q.Rho, 0), 1.0/busyTimes)
	return 1 + q.Arrivals*min(q.Wait/idle, busyMost)
}

package scoring

// Queue is what waits on one replica to be prefilled.
type Queue struct {
	Wait     float64 // seconds of work ahead
	Arrivals float64 // requests a second that come to the replica
	// Share of its time that it prefills, 0..1 and more when overbooked; asked only where something waits.
	Rho float64
}

// A queue is taken to last for busyMost seconds at most: nobody knows whether requests go on coming at the
// same rate for longer. It is taken to last for busyTimes as long as the work in it at most, too, since Rho
// is known to one part in busyTimes at best.
const (
	busyMost  = 10
	busyTimes = 20
)

// Crowding returns the seconds that all together wait longer for each second of work that is put on q, that
// second included. Whoever comes before the queue is empty waits as much longer. That is all who come in
// Wait/(1-Rho) seconds, since what they bring makes it last longer. On a replica that has nothing to do it is
// 1, however busy it was before.
func (q Queue) Crowding() float64 {
	if !(q.Arrivals*q.Wait > 0) {
		return 1
	}
	idle := max(1-max(q.Rho, 0), 1.0/busyTimes)
	return 1 + q.Arrivals*min(q.Wait/idle, busyMost)
}

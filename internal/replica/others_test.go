package replica

import "testing"

func TestOtherRequestsAreThoseOfTwoReports(t *testing.T) {
	var o OtherRequests
	for i, step := range []struct{ seen, want int }{{5, 5}, {8, 5}, {7, 7}, {-1, 0}, {9, 0}, {9, 9}} {
		o.Note(step.seen)
		if o.Count != step.want {
			t.Errorf("report %d of %d beyond ours: %d count, want %d", i, step.seen, o.Count, step.want)
		}
	}
}

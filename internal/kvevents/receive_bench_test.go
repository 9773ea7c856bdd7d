package kvevents

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// tally is a Sink that only counts its calls.
type tally struct{ batches, forgets atomic.Int64 }

func (c *tally) Apply(*kv.Batch)     { c.batches.Add(1) }
func (c *tally) Forget(string)       { c.forgets.Add(1) }
func (c *tally) State(State, string) {}

// BenchmarkReceive sends small batches over real sockets, a thousand at a time, and waits until all are
// applied. The processor time is that of the whole process: it includes the publisher and both I/O threads.
func BenchmarkReceive(b *testing.B) {
	const chunk = 1000
	e := newEngine(b, PublisherOptions{BufferSteps: 2 * chunk})
	sink := new(tally)
	f := NewFollower(e.source(), sink, Options{Audit: 50 * time.Millisecond})
	defer run(b, f)()
	send := func() {
		want := sink.batches.Load() + chunk
		e.publish(chunk)
		for deadline := time.Now().Add(
			10 * time.Second,
		); sink.batches.Load() < want; time.Sleep(20 * time.Microsecond) {
			if time.Now().After(deadline) {
				b.Fatalf("got %d of %d batches: %+v", sink.batches.Load(), want, f.Stats())
			}
		}
	}
	waitStats(b, f, "a live stream", func(s Stats) bool { return s.State == Live })
	e.publish(1) // the first batch may be sent before the subscription takes effect
	waitStats(b, f, "the first batch", func(s Stats) bool { return s.Batches == 1 })
	b.ReportAllocs()
	before := processorTime(b)
	n := 0
	for b.Loop() {
		send()
		n += chunk
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/batch")
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(n), "cpu-ns/batch")
	if s := f.Stats(); s.Lost+s.Restarts > 0 {
		b.Errorf("got stats %+v, want no loss and no restart", s)
	}
}

func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

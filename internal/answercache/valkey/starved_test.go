package valkey

import (
	"sync/atomic"
	"testing"
	"time"
)

// starved measures how long a busy machine kept this process from running since the call. A bound on a
// duration has to allow for that time. The returned function is safe for concurrent use.
func starved(t *testing.T) func() time.Duration {
	const nap = 5 * time.Millisecond
	var lost atomic.Int64
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			began := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(nap):
				lost.Add(int64(time.Since(began) - nap))
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return func() time.Duration {
		time.Sleep(nap) // lets the current measurement end
		return time.Duration(lost.Load())
	}
}

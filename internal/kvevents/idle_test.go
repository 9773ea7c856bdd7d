package kvevents

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestIdleFollowersCostNothing runs 64 followers of idle engines with default heartbeats and audits. For two
// seconds it measures the CPU time of the whole process, which includes the engines.
func TestIdleFollowersCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for two seconds")
	}
	const n = 64
	shared := new(Context)
	e := newEngine(t, PublisherOptions{Context: new(Context)})
	e.publish(10)
	before := memory()
	var all []*recorder
	for range n {
		_, r, _ := follow(t, e.source(), Options{Context: shared})
		all = append(all, r)
	}
	for _, r := range all {
		r.through(t, 0, 9)
	}
	used := memory() - before
	time.Sleep(settle * 3 / 2) // until the first audits have ended
	start, cpu := time.Now(), cpuTime(t)
	time.Sleep(2 * time.Second)
	share := float64(cpuTime(t)-cpu) / float64(time.Since(start))
	t.Logf("%d idle followers: %.2f %% of one core, %d KiB of Go heap each", n, 100*share, used/n/1024)
	if share > 0.1 { // one busy loop takes more; `make bench` measures the real cost of idle followers
		t.Errorf("got %.1f %% of one core, want at most 10 %%: a loop is busy", 100*share)
	}
	if used/n > 128<<10 {
		t.Errorf("got %d bytes of heap for each follower, want at most 128 KiB", used/n)
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// When a client leaves, at any point of its request, all resources of the request are free within 2 s,
// long before the leases of 30 s expire.
func TestClientsLeave(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{
		lease: 30 * time.Second, engines: []string{"--speed", "8b", "--transfer-latency", "20ms"},
		prefill: []string{"--blocks", "4096"}, decode: []string{"--blocks", "160", "--max-model-len", "2400"},
		extra: "scoring: {expected_output: 8000}\n", // keeps a full replica full for a long time
	})
	w := newWriter(3)
	for _, c := range []struct {
		when string
		hold func() (release func(), question question)
		seen func(r *running) error // nil when the request has reached this point
	}{
		{
			"in the queue",
			func() (func(), question) { return f.fill(w), w.completion(w.ids(1200), 500) },
			func(*running) error { return f.reached("tandem_queue_waiting", 1) },
		},
		{
			"during the prefill",
			func() (func(), question) { return f.slowed(f.prefill, 40), w.completion(w.ids(1500), 50) },
			func(*running) error { return f.holds(f.prefill) },
		},
		{
			"during the transfer and before the first byte",
			func() (func(), question) { return f.slowed(f.decode, 60), w.completion(w.ids(1500), 50) },
			func(*running) error { return f.holds(f.decode) },
		},
		{
			"in the middle of the answer",
			func() (func(), question) { return f.slowed(f.decode, 10), w.completion(w.ids(700), 800) },
			func(r *running) error {
				if r.q.body["stream"] != nil {
					r.flowing(5)
				}
				return f.holds(f.decode)
			},
		},
	} {
		for _, streamed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", c.when, streamed), func(t *testing.T) {
				in := f.inside(t)
				release, q := c.hold()
				defer release()
				if streamed {
					q = q.streamed()
				}
				r := in.begin(q)
				eventually(t, patience(10*time.Second), func() error { return c.seen(r) })
				r.cancel()
				<-r.done
				release()
				in.quiet(2 * time.Second)
			})
		}
	}
	t.Run("between the legs", func(t *testing.T) { f.inside(t).leaveBetween(w) })
	t.Run("before the body is complete", func(t *testing.T) { f.inside(t).leaveEarly() })
	f.check(w.next(8))
}

// Many clients leave at random times. A prefill that ends at the moment of its cancellation keeps its
// lease: that must be rare.
func TestClientsLeaveAtRandom(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{
		lease:   12 * time.Second,
		engines: []string{"--speed", "8b", "--transfer-latency", "5ms", "--enable-scale-out"},
		prefill: []string{"--blocks", "4096"}, decode: []string{"--blocks", "1024", "--max-model-len", "4096"},
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	left, stayed := 0, 0
	for i := range 12 {
		w, rnd := newWriter(uint64(i)), rand.New(rand.NewPCG(uint64(i), 3))
		wg.Go(func() {
			for range 25 {
				r := f.begin(w.next(16))
				timer := time.AfterFunc(patience(time.Duration(rnd.IntN(250))*time.Millisecond), r.cancel)
				<-r.done
				timer.Stop()
				mu.Lock()
				if r.got.err != nil {
					left++
				} else if v, why := judge(f.right(r.q), r.got); v != exact {
					t.Error(why)
				} else {
					stayed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d left, %d stayed; leases given back: %v", left, stayed, f.metric("tandem_give_back_total"))
	if left < 20 || stayed == 0 {
		t.Error("bad choice of times: too few clients left, or none stayed")
	}
	stranded := 0
	eventually(t, patience(2*time.Second), func() error {
		if stranded = f.leases(); stranded > 1+left/100 {
			return fmt.Errorf("%d leases remain from %d clients", stranded, left)
		}
		return nil
	})
	t.Logf("%d leases have to run out by themselves", stranded)
	f.quiet(f.set.lease + 2*time.Second)
	w := newWriter(4)
	for range 20 {
		f.check(w.next(4))
	}
}

// leases returns the number of prefills on all engines whose blocks wait for a reader.
func (f *fleet) leases() int {
	f.t.Helper()
	n := 0
	for _, e := range f.prefill {
		var stats struct {
			Ranks []struct{ Leases int }
		}
		f.get(e.control+"/stats", &stats)
		for _, r := range stats.Ranks {
			n += r.Leases
		}
	}
	return n
}

// inside returns the fleet for a subtest.
func (f *fleet) inside(t *testing.T) *fleet {
	in := &fleet{
		t: t, set: f.set, prefill: f.prefill, decode: f.decode, reference: f.reference, router: f.router,
		front: f.front, admin: f.admin, dir: f.dir,
		client: f.client, asker: f.asker, level: f.level, known: map[string]*reply{},
	}
	return in
}

// slowed makes engines slow until release.
func (f *fleet) slowed(engines []*engine, factor float64) (release func()) {
	pace := func(factor float64) {
		for _, e := range engines {
			e.slow(factor)
		}
	}
	pace(factor)
	return func() { pace(1) }
}

// fill occupies both decode replicas until release.
func (f *fleet) fill(w *writer) (release func()) {
	f.t.Helper()
	fast := f.slowed(f.decode, 5)
	var streams []*running
	for range f.decode {
		r := f.begin(w.completion(w.ids(1600), 700).streamed())
		r.flowing(1)
		streams = append(streams, r)
	}
	return func() {
		fast()
		for _, r := range streams {
			r.cancel()
			<-r.done
		}
	}
}

// reached returns an error until a metric of the router is at least n.
func (f *fleet) reached(name string, n float64) error {
	if got := f.metric(name); got < n {
		return fmt.Errorf("%s is %v", name, got)
	}
	return nil
}

// holds returns an error until one of the engines holds blocks.
func (f *fleet) holds(engines []*engine) error {
	for _, e := range engines {
		if f.series(e.url+"/metrics", "vllm:kv_cache_usage_perc") > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s holds nothing", engines[0].role)
}

// leaveBetween stops the router while a prefill runs. When the router continues, it sees the answer of the
// prefill and the client's departure at the same time.
func (f *fleet) leaveBetween(w *writer) {
	f.t.Helper()
	release := f.slowed(f.prefill, 10)
	defer release()
	for range 5 {
		r := f.begin(w.completion(w.ids(1500), 50).streamed())
		eventually(f.t, patience(10*time.Second), func() error { return f.holds(f.prefill) })
		f.router.freeze()
		// An engine answers one step after another. So the answer to this request comes after the prefill.
		for _, e := range f.prefill {
			ask(f.t.Context(), f.asker, e.url, w.completion(w.ids(5), 1), nil)
		}
		r.cancel()
		<-r.done
		f.router.unfreeze()
		f.quiet(2 * time.Second)
	}
	f.t.Logf("leases given back: %v", f.metric("tandem_give_back_total"))
}

// leaveEarly sends half a request.
func (f *fleet) leaveEarly() {
	f.t.Helper()
	for _, sent := range []string{
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Ty",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"model\":\"sim\",\"prompt\":\"a",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"model\":\"sim\",\"",
	} {
		for range 5 {
			c, err := net.Dial("tcp", strings.TrimPrefix(f.front, "http://"))
			f.must(err)
			_, err = c.Write([]byte(sent))
			f.must(err)
			if strings.Contains(sent, "\r\n\r\n") {
				eventually(f.t, patience(2*time.Second),
					func() error { return f.reached("tandem_requests_in_flight", 1) })
			}
			f.must(c.Close())
		}
	}
	f.quiet(2 * time.Second)
}

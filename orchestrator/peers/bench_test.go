package peers

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
)

// BenchmarkSharing is many routers over 64 replicas on sockets. Together they book forty requests a second,
// for half a second each. A probe's way to another router is timed. The benchmark reports the delay of
// bookings, the CPU cost of sharing for a router and for the server, and the bytes sent.
//
//	go test -run - -bench Sharing -benchtime 100x ./orchestrator/peers
func BenchmarkSharing(b *testing.B) {
	for _, n := range []int{2, 4, 16} {
		b.Run(fmt.Sprintf("http/routers=%d", n), func(b *testing.B) { sharing(b, n, nil) })
		b.Run(fmt.Sprintf("valkey/routers=%d", n), func(b *testing.B) { sharing(b, n, valkeytest.Start(b)) })
	}
}

// crowd is a set of routers that share their bookings.
type crowd struct {
	b       *testing.B
	all     []*member
	end     context.CancelFunc
	running sync.WaitGroup
}

// member is one of the routers.
type member struct {
	peers   *Peers
	prefill *prefill.Pool
	waits   atomic.Pointer[func()] // is called when a report has come
}

func newCrowd(b *testing.B, n int, server *valkeytest.Server) *crowd {
	c := &crowd{b: b}
	ctx, cancel := context.WithCancel(context.Background())
	c.end = cancel
	cfg := config.Default()
	if server != nil {
		cfg.Routers.Valkey.Addresses = []string{server.Addr}
	}
	for range n {
		x := c.router()
		if server == nil {
			web := httptest.NewServer(x.peers)
			b.Cleanup(web.Close)
			cfg.Routers.Peers = append(cfg.Routers.Peers, web.URL)
		}
		c.all = append(c.all, x)
	}
	for _, x := range c.all {
		wanted, err := x.peers.Wanted(cfg)
		if err != nil {
			b.Fatal(err)
		}
		x.peers.Apply(wanted)
		c.running.Go(func() { x.peers.Run(ctx) })
	}
	return c
}

func (c *crowd) router() *member {
	x := &member{prefill: prefill.New(prefill.Options{})}
	dp := decode.New(decode.Options{})
	x.prefill.Configure(prefill.Settings{LoadTTL: 10 * time.Second})
	dp.Configure(decode.Settings{LoadTTL: 10 * time.Second, ExpectedOutput: 160})
	log := slog.New(slog.DiscardHandler)
	x.peers = New(Options{
		Log: log, Prefill: x.prefill, Decode: dp, Panics: panics.Guard{Log: log}, Distrusts: &distrusts{},
		Registry: prometheus.NewRegistry(), Keys: new(keys.Accounts),
		RoomChanged: func() {
			if heard := x.waits.Load(); heard != nil {
				(*heard)()
			}
		},
	})
	var ps, ds []replica.Replica
	for i := range 32 {
		facts := replica.Facts{Models: []string{"m"}, BlockSize: 16, Blocks: 25_000}
		name := "http://10.0.0." + strconv.Itoa(i) + ":8000"
		ps = append(ps, replica.Replica{ID: replica.ID(name), Role: replica.Prefill, Facts: facts})
		ds = append(ds, replica.Replica{ID: replica.ID(name), Role: replica.Decode, Facts: facts})
	}
	x.prefill.SetMembers(ps, time.Now())
	dp.SetMembers(ds, time.Now())
	return x
}

// book books a prompt on a replica.
func (x *member) book(b *testing.B, at int) *prefill.Lease {
	now := time.Now()
	c, _ := x.prefill.Candidates(&prefill.Query{Model: "m", Tokens: 8000}, now, nil, nil)
	if at >= len(c) {
		b.Fatalf("%d candidates", len(c))
	}
	return x.prefill.Book(&c[at], now)
}

// work books requests until done is closed.
func (c *crowd) work(done chan struct{}) {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		l := c.all[rand.IntN(len(c.all))].book(c.b, 1+rand.IntN(31))
		time.AfterFunc(500*time.Millisecond, func() { l.Release(time.Now()) })
	}
}

// probe books at one router and returns the time until another router knows it.
func (c *crowd) probe(from, to *member) time.Duration {
	heard := make(chan time.Time, 1)
	check := func() {
		if to.prefill.Status(time.Now())[0].Remote.Requests > 0 {
			select {
			case heard <- time.Now():
			default:
			}
		}
	}
	begun := time.Now()
	l := from.book(c.b, 0)
	to.waits.Store(&check)
	at := <-heard
	to.waits.Store(nil)
	l.Release(time.Now())
	for to.prefill.Status(time.Now())[0].Remote.Requests > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	return at.Sub(begun)
}

func sharing(b *testing.B, n int, server *valkeytest.Server) {
	c := newCrowd(b, n, server)
	done := make(chan struct{})
	c.running.Go(func() { c.work(done) })
	c.probe(c.all[0], c.all[1]) // they hear each other
	time.Sleep(time.Second)
	var ages []time.Duration
	own, theirs := spent(b), serverCPU(b, server)
	bytes := serverBytes(b, server)
	begun := time.Now()
	for b.Loop() {
		from := rand.IntN(n)
		ages = append(ages, c.probe(c.all[from], c.all[(from+1+rand.IntN(n-1))%n]))
		time.Sleep(time.Duration(20+rand.IntN(50)) * time.Millisecond)
	}
	lasted := time.Since(begun)
	slices.Sort(ages)
	b.ReportMetric(ages[len(ages)/2].Seconds()*1e3, "ms-p50")
	b.ReportMetric(ages[len(ages)*99/100].Seconds()*1e3, "ms-p99")
	b.ReportMetric(100*(spent(b)-own).Seconds()/lasted.Seconds()/float64(n), "%cpu/router")
	if server != nil {
		b.ReportMetric(100*(serverCPU(b, server)-theirs)/lasted.Seconds(), "%cpu-server")
		b.ReportMetric((serverBytes(b, server)-bytes)/lasted.Seconds()/1e6, "MB/s")
	} else {
		b.ReportMetric(float64(n*(n-1))*10*float64(answerSize(c.all[0]))/1e6, "MB/s") // as asked, each 100 ms
	}
	close(done)
	c.end()
	c.running.Wait()
}

// answerSize is the size of one answer in bytes.
func answerSize(x *member) int {
	w := httptest.NewRecorder()
	x.peers.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path, nil))
	return w.Body.Len()
}

// spent is the CPU time of this process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func serverCPU(b *testing.B, s *valkeytest.Server) float64 {
	return info(b, s, "used_cpu_user") + info(b, s, "used_cpu_sys")
}

func serverBytes(b *testing.B, s *valkeytest.Server) float64 {
	return info(b, s, "total_net_output_bytes") + info(b, s, "total_net_input_bytes")
}

// info is a number from the server's INFO.
func info(b *testing.B, s *valkeytest.Server, name string) float64 {
	if s == nil {
		return 0
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	text, err := client.Info(b.Context(), "everything").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			x, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			return x
		}
	}
	b.Fatalf("the server does not tell %s", name)
	return 0
}

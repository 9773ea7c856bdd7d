package peers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/lab/memnet"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
)

// rig is a router with a prefill replica p0 and a decode replica d0 without servers. The test sets the
// answers of the other routers. Time is fake.
type rig struct {
	t       *testing.T
	net     *memnet.Net
	peers   *Peers
	prefill *prefill.Pool
	decode  *decode.Pool
	reg     *prometheus.Registry
	log     lines
	// What it knows of distrusted engines.
	distrusts distrusts
	stop      func() // returns when nobody is asked any more
}

// distrusts are engines that are distrusted, as the fleet would know them. Safe for concurrent use.
type distrusts struct {
	mu      sync.Mutex
	known   map[float64]replica.Distrust
	changes uint64
}

func (x *distrusts) Distrusted() []replica.Distrust {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.known))
}

func (x *distrusts) HearDistrust(found []replica.Distrust) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range found {
		if d.Era <= x.known[d.Started].Era {
			continue
		}
		if x.known == nil {
			x.known = map[float64]replica.Distrust{}
		}
		x.known[d.Started] = d
		x.changes++
	}
}

func (x *distrusts) DistrustChanges() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changes
}

func (x *distrusts) era(started float64) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.known[started].Era
}

// lines is a log. Safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// peering runs story in a rig that asks peers every 100 ms.
//
// before prepares everything that must exist when the peers are asked for the first time.
func peering(t *testing.T, urls []string, story func(r *rig), before ...func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, prepare := range before {
			prepare(r)
		}
		r.reload(100*time.Millisecond, urls...)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.peers.Run(ctx)
		}()
		r.stop = func() {
			cancel()
			<-ended
		}
		defer r.stop()
		story(r)
	})
}

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, net: &memnet.Net{}, prefill: prefill.New(prefill.Options{}), decode: decode.New(decode.Options{}),
		reg: prometheus.NewRegistry(),
	}
	r.decode.Configure(decode.Settings{LoadTTL: 10 * time.Second, ExpectedOutput: 160})
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.peers = New(Options{
		Log: log, Dial: r.net.Dial, Prefill: r.prefill, Decode: r.decode, RoomChanged: func() {},
		Distrusts: &r.distrusts, Panics: panics.Guard{Log: log}, Registry: r.reg, Keys: new(keys.Accounts),
	})
	r.prefill.SetMembers([]replica.Replica{{ID: "p0", Role: replica.Prefill}}, time.Now())
	r.decode.SetMembers([]replica.Replica{{ID: "d0", Role: replica.Decode}}, time.Now())
	return r
}

func (r *rig) reload(interval time.Duration, urls ...string) {
	r.t.Helper()
	c := config.Default()
	c.Routers.Peers, c.Experimental.Routers.Interval = urls, interval
	wanted, err := r.peers.Wanted(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.peers.Apply(wanted)
}

// other is another router as this one sees it.
type other struct {
	says  atomic.Pointer[http.HandlerFunc]
	asked atomic.Int64
	conns atomic.Int64
}

func (x *other) say(h http.HandlerFunc) { x.says.Store(&h) }

// serve listens at addr until the test ends.
func (r *rig) serve(addr string, h http.HandlerFunc) *other {
	r.t.Helper()
	ln, err := r.net.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	x := &other{}
	x.say(h)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			x.asked.Add(1)
			w.Header().Set("X-Request-Id", q.Header.Get("X-Request-Id"))
			(*x.says.Load())(w, q)
		}),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			x.conns.Add(1)
			return ctx
		},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(ln)
	}()
	r.t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return x
}

// always gives the same answer each time.
func always(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// booked is the answer of a router process with this number of requests on p0 and d0, and on two replicas
// that no other router has.
func booked(instance string, requests int) http.HandlerFunc {
	body, err := json.Marshal(bookings{
		Instance: instance,
		Prefill: []prefill.PeerLoad{
			{ID: "p0", Requests: requests, Tokens: 1000 * requests}, {ID: "p9", Requests: 7},
		},
		Decode: []decode.PeerLoad{{ID: "d9", Sequences: 7}, {ID: "d0", Sequences: requests}},
	})
	if err != nil {
		panic(err)
	}
	return always(http.StatusOK, strings.Replace(string(body), "{", `{"of_a_later_version":{"x":[1]},`, 1))
}

// knows checks how many requests of others this router knows of, in both pools.
func (r *rig) knows(want int) {
	r.t.Helper()
	synctest.Wait()
	p, d := r.prefill.Status(time.Now())[0].Remote, r.decode.Status(time.Now())[0].Remote
	if p.Requests != want || p.Tokens != 1000*want || d.Sequences != want {
		r.t.Errorf("it knows of %d requests with %d tokens and of %d sequences elsewhere, want %d\n%s",
			p.Requests, p.Tokens, d.Sequences, want, &r.log)
	}
}

// up checks how a peer is heard: 1 if it is, 0 if it is not, -1 if Heard leaves the peer out.
func (r *rig) up(peer string, want int) {
	r.t.Helper()
	if got := r.heard(peer); got != want {
		r.t.Errorf("%s is heard: %d, want %d", peer, got, want)
	}
}

func (r *rig) heard(peer string) int {
	for url, up := range r.peers.Heard() {
		switch {
		case url != peer:
		case up:
			return 1
		default:
			return 0
		}
	}
	return -1
}

func (r *rig) metric(name, peer, reason string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && labels["peer"] == peer && cmp.Or(labels["reason"], labels["result"]) == reason {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// logged checks how many lines of the log have a text.
func (r *rig) logged(text string, want int) {
	r.t.Helper()
	synctest.Wait()
	if got := strings.Count(r.log.String(), text); got != want {
		r.t.Errorf("the log says %q %d times, want %d:\n%s", text, got, want, &r.log)
	}
}

const (
	first  = "http://t1:9090"
	second = "http://t2:9090"
)

// The bookings of other routers count as long as they report them.
func TestPeersAreHeard(t *testing.T) {
	peering(t, []string{first, second}, func(r *rig) {
		one := r.serve("t1:9090", booked("one", 3))
		r.serve("t2:9090", booked("two", 20))
		time.Sleep(200 * time.Millisecond)
		r.knows(23)
		r.up(first, 1)
		one.say(booked("one", 4))
		time.Sleep(130 * time.Millisecond)
		r.knows(24)
		one.say(booked("one", 0))
		time.Sleep(130 * time.Millisecond)
		r.knows(20)
		time.Sleep(time.Minute)
		if n := one.conns.Load(); n != 1 {
			r.t.Errorf("%d connections, want one that is kept", n)
		}
		if n := one.asked.Load(); n < 550 || n > 650 {
			r.t.Errorf("asked %d times in a minute, want some 600", n)
		}
		r.logged("router tells its bookings", 2)
		r.stop()
		r.knows(0)
	})
}

// A router that does not answer, in any way, is forgotten exactly when the patience ends. One good answer
// brings it back.
func TestSilentPeersAreForgotten(t *testing.T) {
	hang := func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }
	for _, x := range []struct {
		name, reason string
		interval     time.Duration
		silence      http.HandlerFunc // nil: gone
		patience     time.Duration
	}{
		{name: "gone", reason: "unreachable", interval: 100 * time.Millisecond, patience: time.Second},
		{name: "gone, asked rarely", reason: "unreachable", interval: 2 * time.Second, patience: 10 * time.Second},
		{name: "hangs", reason: "timeout", interval: 100 * time.Millisecond, silence: hang, patience: time.Second},
		{
			name: "an error", reason: "status", interval: 100 * time.Millisecond, silence: always(500, "{}"),
			patience: time.Second,
		},
		{
			name: "an older version", reason: "status", interval: 100 * time.Millisecond, silence: http.NotFound,
			patience: time.Second,
		},
		{
			name: "another page", reason: "bad_answer", interval: 100 * time.Millisecond,
			silence: always(200, "<html>"), patience: time.Second,
		},
		{
			name: "too much", reason: "bad_answer", interval: 100 * time.Millisecond, patience: time.Second,
			silence: always(200, `{"instance":"one"}`+strings.Repeat(" ", answerLimit)),
		},
		{
			name: "a redirect", reason: "status", interval: 100 * time.Millisecond,
			silence: http.RedirectHandler(second+Path, http.StatusFound).ServeHTTP, patience: time.Second,
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			peering(t, nil, func(r *rig) {
				var last time.Time
				good := func(w http.ResponseWriter, q *http.Request) {
					last = time.Now()
					booked("one", 3)(w, q)
				}
				one := r.serve("t1:9090", good)
				r.reload(x.interval, first)
				time.Sleep(3 * x.interval)
				r.knows(3)
				if x.silence == nil {
					r.net.Refuse("t1:9090", true)
					r.net.Cut("t1:9090")
				} else {
					one.say(x.silence)
				}
				time.Sleep(time.Until(last.Add(x.patience - time.Millisecond)))
				r.knows(3)
				r.up(first, 1)
				time.Sleep(time.Millisecond)
				r.knows(0)
				r.up(first, 0)
				time.Sleep(20 * x.interval)
				r.logged("router is silent", 1)
				if n := r.metric("tandem_router_peer_failures_total", first, x.reason); n < 2 {
					r.t.Errorf("%v failures with reason %s", n, x.reason)
				}
				one.say(good)
				r.net.Refuse("t1:9090", false)
				time.Sleep(x.interval + x.interval/5 + x.patience)
				r.knows(3)
				r.up(first, 1)
				r.logged("router is back", 1)
			})
		})
	}
}

// A peer that has not started yet is no alarm at once. A peer that never comes is reported once.
func TestPeersThatNeverCame(t *testing.T) {
	peering(t, []string{first}, func(r *rig) {
		time.Sleep(900 * time.Millisecond)
		r.logged("router is silent", 0)
		time.Sleep(time.Minute)
		r.logged("router is silent", 1)
		r.logged("admin.listen", 1)
		r.knows(0)
	})
}

// The bookings of this process count once, whatever the list of peers says. So do the bookings of another
// process.
func TestNobodyCountsTwice(t *testing.T) {
	const self = "http://self:9090"
	peering(t, []string{self, first, second}, func(r *rig) {
		me := r.serve("self:9090", r.peers.ServeHTTP)
		r.serve("t1:9090", booked("one", 3))
		two := r.serve("t2:9090", booked("one", 3))
		time.Sleep(time.Minute)
		r.knows(3)
		r.up(self, -1)
		if n := me.asked.Load(); n != 6 && n != 7 {
			r.t.Errorf("it asked itself %d times in a minute, want 6 or 7", n)
		}
		r.logged("it is this router itself", 1)
		r.logged("it is the same router as", 1)
		if reported := r.heard(first) + r.heard(second); reported != 0 {
			r.t.Errorf("the two addresses of one router are up %v, want one up and one left out", reported)
		}
		for _, gone := range []string{first, second} {
			left := map[string]string{first: second, second: first}[gone]
			r.reload(100*time.Millisecond, self, left)
			time.Sleep(redundantPause)
			r.knows(3)
			r.reload(100*time.Millisecond, self, first, second)
		}
		two.say(booked("two", 40)) // another process has come to the address
		time.Sleep(redundantPause)
		r.knows(43)
		two.say(r.peers.ServeHTTP)
		time.Sleep(120 * time.Millisecond)
		r.knows(3)
		r.net.Refuse("t2:9090", true)
		r.net.Cut("t2:9090")
		time.Sleep(redundantPause + 2*time.Second)
		r.up(second, 0)
	})
}

// A reload starts new peers, forgets removed peers before it returns, and leaves the others alone.
func TestReloadOfPeers(t *testing.T) {
	peering(t, []string{first}, func(r *rig) {
		one, two := r.serve("t1:9090", booked("one", 3)), r.serve("t2:9090", booked("two", 20))
		time.Sleep(200 * time.Millisecond)
		r.knows(3)
		r.reload(100*time.Millisecond, second, first)
		r.knows(23)
		r.reload(100*time.Millisecond, first)
		asked := two.asked.Load()
		r.knows(3)
		r.up(second, -1)
		time.Sleep(time.Minute)
		if n := two.asked.Load() - asked; n != 0 {
			r.t.Errorf("one that has gone was asked %d times", n)
		}
		if n := one.conns.Load(); n != 1 {
			r.t.Errorf("%d connections to one that stayed, want 1", n)
		}
		asked = one.asked.Load()
		r.reload(5*time.Second, first)
		time.Sleep(time.Minute)
		r.knows(3)
		if n := one.asked.Load() - asked; n < 10 || n > 16 {
			r.t.Errorf("asked %d times in a minute of intervals of 5 s", n)
		}
		r.stop()
		r.reload(100*time.Millisecond, second)
		time.Sleep(time.Minute)
		r.knows(0)
	})
}

// Stopping does not wait for peers.
func TestTheEndOfAskingIsAtOnce(t *testing.T) {
	peering(t, []string{first, second}, func(r *rig) {
		r.serve("t1:9090", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		ln, err := r.net.Listen("tcp", "t2:9090") // nobody accepts
		if err != nil {
			r.t.Fatal(err)
		}
		defer ln.Close()
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took != 0 {
			r.t.Errorf("it took %v", took)
		}
	})
}

// badBookings are answers that are refused as a whole.
var badBookings = map[string]string{
	"nothing":           ``,
	"cut off":           `{"instance":"a","prefill":[{"id":"p0"`,
	"two answers":       `{"instance":"a"}{"instance":"a"}`,
	"null":              `null`,
	"a list":            `[]`,
	"no instance":       `{"prefill":[{"id":"p0","requests":1}]}`,
	"a long instance":   `{"instance":"` + strings.Repeat("a", 65) + `"}`,
	"a negative count":  `{"instance":"a","prefill":[{"id":"p0","requests":-1}]}`,
	"an absurd count":   `{"instance":"a","decode":[{"id":"d0","promised":2147483648}]}`,
	"no integer":        `{"instance":"a","decode":[{"id":"d0","promised":1e40}]}`,
	"a fraction":        `{"instance":"a","decode":[{"id":"d0","promised":0.5}]}`,
	"negative work":     `{"instance":"a","prefill":[{"id":"p0","work_ns":-1}]}`,
	"more than an hour": `{"instance":"a","decode":[{"id":"d0","work_ns":3600000000001}]}`,
	"negative rho":      `{"instance":"a","prefill":[{"id":"p0","rho":-0.1}]}`,
	"infinite rho":      `{"instance":"a","prefill":[{"id":"p0","rho":1e999}]}`,
	"no number":         `{"instance":"a","prefill":[{"id":"p0","rho":NaN}]}`,
	"a replica twice":   `{"instance":"a","decode":[{"id":"d0","held":1},{"id":"d0","held":1}]}`,
	"a report from later": `{"instance":"a","decode":[{"id":"d0","report":{"age_ns":-1,"running":0,` +
		`"waiting":0,"loading":0,"usage":0}}]}`,
	"a report from never": `{"instance":"a","prefill":[{"id":"p0","report":{"age_ns":9223372036854775807,` +
		`"running":0,"waiting":0,"loading":0,"usage":0}}]}`,
	"a full report": `{"instance":"a","prefill":[{"id":"p0","report":{"age_ns":1,"running":0,"waiting":0,` +
		`"loading":0,"usage":1.5}}]}`,
	"an engine that is trusted": `{"instance":"a","distrusted":[{"started":5,"era":0}]}`,
	"an era that never comes":   `{"instance":"a","distrusted":[{"started":5,"era":4294967295}]}`,
	"an engine without a name":  `{"instance":"a","distrusted":[{"era":1}]}`,
	"a text for a list":         `{"instance":"a","decode":"none"}`,
}

func TestBadBookings(t *testing.T) {
	for name, body := range badBookings {
		if b, err := readBookings([]byte(body)); err == nil ||
			failureReason(fmt.Errorf("wrapped: %w", err)) != "bad_answer" {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

// Accepted bookings are plausible, and a repetition changes nothing.
func FuzzReadBookings(f *testing.F) {
	for _, body := range badBookings {
		f.Add([]byte(body))
	}
	f.Add(
		[]byte(
			`{"instance":"a","prefill":[{"id":"p0","requests":1,"tokens":2,"work_ns":3,"fresh":4,"sending_ns":5,` +
				`"rho":0.5}],"decode":[{"id":"d0","sequences":1,"report":{"age_ns":5,"running":1,"waiting":-1,` +
				`"loading":0,"usage":-1}}],"more":{}}`,
		),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := readBookings(body)
		if err != nil {
			return
		}
		b.addAge(time.Second)
		now := time.Now()
		p, d := prefill.New(prefill.Options{}), decode.New(decode.Options{})
		for i := range b.Prefill {
			p.SetMembers([]replica.Replica{{ID: b.Prefill[i].ID}}, now)
			p.MergePeer("peer", b.Prefill, now)
			if e := p.Status(now)[0].Remote; !e.Plausible() {
				t.Fatalf("%+v is counted", e)
			}
		}
		for i := range b.Decode {
			d.SetMembers([]replica.Replica{{ID: b.Decode[i].ID}}, now)
			d.MergePeer("peer", b.Decode, now)
			if e := d.Status(now)[0].Remote; !e.Plausible() {
				t.Fatalf("%+v is counted", e)
			}
		}
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readBookings(text)
		if err != nil || !reflect.DeepEqual(b, again) {
			t.Fatalf("%+v, %v, want %+v", again, err, b)
		}
	})
}

// A report never counts as younger than it is, however long the answer took.
func TestSlowAnswersAgeTheirReports(t *testing.T) {
	peering(t, []string{first}, func(r *rig) {
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		r.serve("t1:9090", func(w http.ResponseWriter, _ *http.Request) {
			once()
			time.Sleep(700 * time.Millisecond)
			_, _ = w.Write([]byte(`{"instance":"one","decode":[{"id":"d0","report":{"age_ns":200000000,"running":5,` +
				`"waiting":0,"loading":0,"usage":0.5}}]}`))
		})
		<-asked // a router that is asked before it listens is asked again later
		time.Sleep(701 * time.Millisecond)
		if s := r.decode.Status(time.Now())[0]; s.Running != 5 || s.LoadAge != 901 {
			r.t.Errorf("%d running as reported %v ms ago, want 5 and 901 ms", s.Running, s.LoadAge)
		}
	})
}

// A router's first answer brings its findings about engines, and this router's answers bring its own. A
// router of an older version sends no findings. Its bookings count anyway.
func TestPeersShareDistrust(t *testing.T) {
	serve := func(r *rig) {
		r.serve("t1:9090", booked("old", 1))
		r.serve("t2:9090", always(http.StatusOK, `{"instance":"new","prefill":null,"decode":null,`+
			`"distrusted":[{"started":5.25,"era":2,"seen":946684800,"of_a_later_version":1}]}`))
	}
	peering(t, []string{first, second}, func(r *rig) {
		began := time.Now()
		r.peers.WaitForFirst(r.t.Context())
		if era := r.distrusts.era(5.25); era != 2 || time.Since(began) != 0 {
			t.Errorf("era %d is known after %v, want 2 at once", era, time.Since(began))
		}
		r.knows(1)
		w := httptest.NewRecorder()
		r.peers.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path, nil))
		b, err := readBookings(w.Body.Bytes())
		if err != nil || len(b.Distrusted) != 1 || b.Distrusted[0].Started != 5.25 {
			t.Errorf("it tells %+v, %v", b, err)
		}
	}, serve)
}

// The wait for an answer of a router ends at the latest when the patience ends.
func TestFirstAnswersAreNotWaitedForLong(t *testing.T) {
	peering(t, []string{first}, func(r *rig) {
		r.serve("t1:9090", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		began := time.Now()
		r.peers.WaitForFirst(r.t.Context())
		if took := time.Since(began); took > leastPatience {
			t.Errorf("waited %v, want %v at most", took, leastPatience)
		}
	})
}

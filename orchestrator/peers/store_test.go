package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/prefill"
)

// newMet is a router that shares bookings with others through a real server, in real time, with replicas p0
// and d0.
func newMet(t *testing.T, v config.ValkeyServer) *rig {
	t.Helper()
	r := &rig{
		t: t, prefill: prefill.New(prefill.Options{}), decode: decode.New(decode.Options{}),
		reg: prometheus.NewRegistry(),
	}
	r.decode.Configure(decode.Settings{LoadTTL: 10 * time.Second, ExpectedOutput: 160})
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.peers = New(Options{
		Log: log, Prefill: r.prefill, Decode: r.decode, RoomChanged: func() {},
		Distrusts: &r.distrusts, Panics: panics.Guard{Log: log}, Registry: r.reg, Keys: new(keys.Accounts),
	})
	p0 := replica.Replica{ID: "p0", Role: replica.Prefill, Facts: replica.Facts{
		Models: []string{"m"}, BlockSize: 16, PrefixCaching: true,
	}}
	r.prefill.Configure(prefill.Settings{LoadTTL: 10 * time.Second})
	r.prefill.SetMembers([]replica.Replica{p0}, time.Now())
	r.decode.SetMembers([]replica.Replica{{ID: "d0", Role: replica.Decode}}, time.Now())
	r.meet(v)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.peers.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(r.stop)
	return r
}

// meet applies a configuration with a server, and peers to ask besides.
func (r *rig) meet(v config.ValkeyServer, urls ...string) {
	r.t.Helper()
	c := config.Default()
	c.Routers = config.Routers{Valkey: v, Peers: urls}
	wanted, err := r.peers.Wanted(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.peers.Apply(wanted)
}

func at(s *valkeytest.Server) config.ValkeyServer {
	v := config.Default().Routers.Valkey
	v.Addresses = []string{s.Addr}
	return v
}

// book books a prompt on p0 and returns what ends it.
func (r *rig) book() (end func()) {
	r.t.Helper()
	l := r.lease()
	return func() { l.Release(time.Now()) }
}

func (r *rig) lease() *prefill.Lease {
	r.t.Helper()
	now := time.Now()
	c, _ := r.prefill.Candidates(&prefill.Query{Model: "m", Tokens: 1000}, now, nil, nil)
	if len(c) != 1 {
		r.t.Fatalf("%d candidates", len(c))
	}
	return r.prefill.Book(&c[0], now)
}

// requests is the number of prompts of other routers that this router knows on p0.
func (r *rig) requests() int { return r.prefill.Status(time.Now())[0].Remote.Requests }

// store is the state of the server for this router.
func (r *rig) store() Store {
	s, _ := r.peers.Store()
	return s
}

// within waits until something holds, and returns how long that took.
func within(t *testing.T, most time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !holds() {
		if time.Since(begun) > most {
			t.Fatalf("not within %v: %s", most, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

const soon = 20 * time.Second // long enough for a busy machine

// Routers that know only a common server hear the bookings of each other as soon as they are made. A router
// that has ended has no bookings.
func TestRoutersMeetAtAServer(t *testing.T) {
	server := valkeytest.Start(t)
	a, b := newMet(t, at(server)), newMet(t, at(server))
	c := newMet(t, at(server))
	for _, r := range []*rig{a, b, c} {
		within(t, soon, "all are met", func() bool { return r.store().Routers == 2 })
	}
	end := a.book()
	for _, r := range []*rig{b, c} {
		within(t, soon, "what is booked is known", func() bool { return r.requests() == 1 })
	}
	defer b.book()()
	within(t, soon, "that of two is", func() bool { return c.requests() == 2 })
	within(t, soon, "nobody's own is", func() bool { return a.requests() == 1 && b.requests() == 1 })
	end()
	within(t, soon, "what has ended is not", func() bool { return b.requests() == 0 && c.requests() == 1 })
	c.stop()
	within(t, soon, "who has ended is forgotten", func() bool { return a.store().Routers == 1 })
	if strings.Contains(a.log.String(), "silent") || !strings.Contains(a.log.String(), "router has ended") {
		t.Errorf("one that ended is not told from one that is silent:\n%s", &a.log)
	}
	if !a.store().Up || a.store().Delay <= 0 {
		t.Errorf("the server works, and is taken for %+v", a.store())
	}
	a.stop()
	b.stop()
	within(t, soon, "nothing runs any more", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("redis/go-redis")) && !bytes.Contains(stacks, []byte("(*store)"))
	})
}

// A prompt that one router has sent to a replica counts as present at another router before the replica's
// events announce it. This holds through a server and over HTTP.
func TestPromptsThatWereSentAreKnown(t *testing.T) {
	server := valkeytest.Start(t)
	for name, meet := range map[string]func(a, b *rig){
		"through a server": func(a, b *rig) { a.meet(at(server)); b.meet(at(server)) },
		"over HTTP": func(a, b *rig) {
			web := httptest.NewServer(a.peers)
			t.Cleanup(web.Close)
			b.meet(config.ValkeyServer{}, web.URL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newMet(t, config.ValkeyServer{}), newMet(t, config.ValkeyServer{})
			meet(a, b)
			keys := []kv.Key{11, 12, 13}
			matched := func(r *rig) int {
				depth := make([]int32, 1)
				r.prefill.Match(roster.Prompt{Keys: keys}, depth)
				return int(depth[0])
			}
			end := a.book()
			within(t, soon, "they hear each other", func() bool { return b.requests() > 0 })
			end()
			within(t, soon, "it is known", func() bool {
				l := a.lease()
				defer l.Release(time.Now())
				l.Speculate(keys, time.Second, time.Now())
				if matched(a) != 3 {
					t.Fatalf("%d blocks match at who sent them", matched(a))
				}
				time.Sleep(20 * time.Millisecond)
				return matched(b) == 3
			})
		})
	}
}

// If the server fails, the bookings of others are forgotten, and one log line says so. Everything comes back
// by itself.
func TestServerFails(t *testing.T) {
	for name, outage := range map[string]struct{ begin, end func(s *valkeytest.Server) }{
		"killed": {(*valkeytest.Server).Kill, (*valkeytest.Server).Restart},
		"frozen": {(*valkeytest.Server).Freeze, (*valkeytest.Server).Unfreeze},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := valkeytest.Start(t)
			a, b := newMet(t, at(server)), newMet(t, at(server))
			defer a.book()()
			within(t, soon, "what is booked is known", func() bool { return b.requests() == 1 })
			outage.begin(server)
			within(t, soon, "the server is down", func() bool { return !b.store().Up })
			within(t, soon, "what was heard is forgotten", func() bool { return b.requests() == 0 })
			before := time.Now()
			a.book()()
			if took := time.Since(before); took > time.Second {
				t.Errorf("booking took %v while the server does nothing", took)
			}
			outage.end(server)
			within(t, soon, "it is heard again", func() bool { return b.requests() == 1 && b.store().Up })
			for line, want := range map[string]int{"does not work": 1, "works again": 1, "is silent": 0} {
				if n := strings.Count(b.log.String(), line); n != want {
					t.Errorf("%d times %q in the log, want %d:\n%s", n, line, want, &b.log)
				}
			}
		})
	}
}

// A router that no longer reports is forgotten, and the others continue.
func TestSilentAtAServer(t *testing.T) {
	server := valkeytest.Start(t)
	a := newMet(t, at(server))
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	say := func(m message) {
		body, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Publish(t.Context(), "tandem:routers", body).Err(); err != nil {
			t.Fatal(err)
		}
	}
	other := message{bookings: bookings{
		Instance: "other", Prefill: []prefill.PeerLoad{{ID: "p0", Requests: 3}},
	}, Whole: true}
	within(t, soon, "it is heard", func() bool { say(other); return a.requests() == 3 })
	other.Whole, other.Prefill[0].Requests = false, 4
	within(t, soon, "what has changed is heard", func() bool { say(other); return a.requests() == 4 })
	took := within(t, soon, "it is forgotten", func() bool { return a.requests() == 0 })
	if took < 800*time.Millisecond {
		t.Errorf("forgotten after %v:\n%s", took, &a.log)
	}
	within(t, soon, "that is said", func() bool { return strings.Contains(a.log.String(), "router is silent") })
	say(other)
	time.Sleep(50 * time.Millisecond) // in which nothing must come
	if a.requests() != 0 || a.store().Routers != 0 {
		t.Error("a part is taken for the whole")
	}
}

// A message that is not from a router is counted, and changes nothing.
func TestForeignMessages(t *testing.T) {
	server := valkeytest.Start(t)
	a := newMet(t, at(server))
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	for _, body := range []string{
		"", "hello", "null", "[]", `{"instance":""}`, `{"instance":"x","prefill":7}`,
		`{"instance":"x","whole":true,"prefill":[{"id":"p0","requests":-1}]}`,
		`{"instance":"x","whole":true,"prefill":[{"id":"p0"},{"id":"p0"}]}`,
		`{"instance":"x","whole":true,"decode":[{"id":"d0","first":{"work_ns":-5}}]}`,
		`{"instance":"x","whole":true,"guesses":{"prefill":[{"id":"p0","keys":"AAAA"}]}}`,
		`{"instance":"x","whole":true,"guesses":{"decode":[{"id":"d0","keys":"AAAAAAAAAAA=","within_ns":-1}]}}`,
		`{"instance":"` + strings.Repeat("x", 65) + `","whole":true}`,
		strings.Repeat(" ", answerLimit+1),
	} {
		before := a.metric("tandem_router_store_messages_total", "", foreign)
		within(t, soon, "it is counted: "+body[:min(len(body), 80)], func() bool {
			if err := client.Publish(t.Context(), "tandem:routers", body).Err(); err != nil {
				t.Fatal(err)
			}
			return a.metric("tandem_router_store_messages_total", "", foreign) > before
		})
		if a.requests() != 0 || a.store().Routers != 0 || !a.store().Up {
			t.Errorf("%.80s: %d requests of %+v", body, a.requests(), a.store())
		}
	}
}

// If the server refuses the password, the log says what to do. A reload with the right password is enough.
func TestServerRefusesThePassword(t *testing.T) {
	server := valkeytest.Start(t, "--requirepass", "right")
	wrong, right := at(server), at(server)
	wrong.Password, right.Password = config.Secret{Value: "wrong"}, config.Secret{Value: "right"}
	a, b := newMet(t, wrong), newMet(t, right)
	within(t, soon, "it is told", func() bool {
		return strings.Contains(a.log.String(), "routers.valkey.password")
	})
	defer b.book()()
	a.meet(right)
	within(t, soon, "they meet", func() bool { return a.requests() == 1 })
	a.meet(config.Default().Routers.Valkey)
	if _, there := a.peers.Store(); there || a.requests() != 0 {
		t.Errorf("%d requests are known of a server that is not configured any more", a.requests())
	}
}

// A router that is heard through the server is not asked directly, but is asked at once when the server
// fails.
func TestPeersStandInForTheServer(t *testing.T) {
	server := valkeytest.Start(t)
	a, b := newMet(t, at(server)), newMet(t, at(server))
	web := httptest.NewServer(b.peers)
	defer web.Close()
	url := web.URL
	a.meet(at(server), url)
	defer b.book()()
	within(t, soon, "it is heard through the server alone", func() bool {
		return a.store().Routers == 1 && a.heard(url) == -1 && a.requests() == 1
	})
	server.Kill()
	within(t, soon, "it is asked", func() bool { return a.heard(url) == 1 && a.requests() == 1 })
	server.Restart()
	within(t, soon, "it is heard through the server again", func() bool {
		return a.store().Routers == 1 && a.heard(url) == -1 && a.requests() == 1
	})
}

// Each change of the server's settings opens a new connection, and nothing else does.
func TestAnotherServerIsMetAt(t *testing.T) {
	r := newRig(t)
	first := config.Default().Routers.Valkey
	first.Addresses = []string{"v:6379"}
	r.meet(first)
	before := r.peers.store
	if r.meet(first, "http://t1:9090"); r.peers.store != before {
		t.Error("the same server is another one")
	}
	fields := reflect.TypeFor[config.ValkeyServer]()
	for i := range fields.NumField() {
		v := first
		switch at := reflect.ValueOf(&v).Elem().Field(i).Addr().Interface().(type) {
		case *string:
			*at += "x"
		case *bool:
			*at = !*at
		case *[]string:
			*at = []string{"w:6379"}
		case *config.Secret:
			at.Value = "x"
		case *config.ClientTLS:
			v.Secure = true // else it means nothing
			at.ServerName = "v"
		default:
			t.Fatalf("%s is a %T", fields.Field(i).Name, at)
		}
		r.meet(first)
		before = r.peers.store
		if r.meet(v); r.peers.store == before {
			t.Errorf("another %s changes nothing", fields.Field(i).Name)
		}
	}
}

// All other routers hear a finding about an engine at once. A router that comes later hears it before it
// sends its first request.
func TestDistrustIsSharedThroughAServer(t *testing.T) {
	server := valkeytest.Start(t)
	a, b := newMet(t, at(server)), newMet(t, at(server))
	for _, r := range []*rig{a, b} {
		within(t, soon, "all are met", func() bool { return r.store().Routers == 1 })
	}
	a.distrusts.HearDistrust([]replica.Distrust{{Started: 5, Era: 1}})
	within(t, soon, "what is found is known", func() bool { return b.distrusts.era(5) == 1 })
	c := newMet(t, at(server))
	c.peers.WaitForFirst(t.Context())
	if !c.store().Up || c.distrusts.era(5) != 1 {
		t.Errorf("one that came later knows of era %d, want 1", c.distrusts.era(5))
	}
}

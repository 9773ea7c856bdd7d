package orchestrator

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
)

// blocked is a network on which new connections fail as a test wants.
type blocked struct {
	addr  string // "" for every address
	fails atomic.Pointer[func(ctx context.Context) error]
}

// between inserts the network between a router and its engines.
func (b *blocked) between(o *Options) {
	inner := o.Dial
	o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if f := b.fails.Load(); f != nil && (b.addr == "" || b.addr == addr) {
			return nil, &net.OpError{Op: "dial", Net: "mem", Err: (*f)(ctx)}
		}
		return inner(ctx, network, addr)
	}
}

// dropped fails like a host that does not answer because packets are lost.
func dropped(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// exhausted fails like a router that has no file descriptor left.
func exhausted(context.Context) error { return os.NewSyscallError("socket", syscall.EMFILE) }

// If a load poll cannot connect, whether refused or unanswered, the engine counts as unreachable and is
// out of use at once, as after a request that cannot connect.
func TestAScrapeThatCannotConnectTakesOut(t *testing.T) {
	way := &blocked{addr: "d0.internal:8000"}
	quick := func(c *config.Config) {
		longAnswers(c)
		c.Timeouts.Connect = 500 * time.Millisecond
	}
	in(t, setup{config: quick, options: way.between}, func(w *world) {
		way.fails.Store(new(dropped))
		w.net.Cut(w.d[0].addr)
		time.Sleep(w.cfg.Timeouts.Connect + 2*time.Second)
		if n := w.count("tandem_replica_up", w.d[0].addr); n != 0 {
			w.t.Error("still up, though no connection can be opened")
		}
		if n := w.count("tandem_replica_up", ""); n != 3 {
			w.t.Errorf("%d replicas are up, want 3 of 4", n)
		}
		way.fails.Store(nil)
		time.Sleep(20 * time.Second)
		if n := w.count("tandem_replica_up", ""); n != 4 {
			w.t.Errorf("%d replicas are up in the end, want 4", n)
		}
	})
}

// A replica that is away refuses connections and resets them in turn. One WARN line says that it is not
// usable. A changed reason is logged as INFO when it is first seen, and then once a minute at most.
func TestAReplicaThatIsAwayIsWarnedOfOnce(t *testing.T) {
	var log bytes.Buffer
	way := &blocked{addr: "d0.internal:8000"}
	var n atomic.Int32
	fails := func(context.Context) error {
		reasons := []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET}
		return os.NewSyscallError("connect", reasons[n.Add(1)%2])
	}
	options := func(o *Options) {
		way.between(o)
		logsTo(&log)(o)
	}
	reported := func() (warned, informed int) {
		synctest.Wait() // until the log is written
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "not usable") && strings.Contains(line, "level=WARN") {
				warned++
			} else if strings.Contains(line, "not usable") {
				informed++
			}
		}
		return warned, informed
	}
	in(t, setup{options: options}, func(w *world) {
		for outage := range 2 {
			way.fails.Store(&fails)
			w.net.Cut(w.d[0].addr)
			time.Sleep(20 * time.Second)
			_, before := reported()
			time.Sleep(5*time.Minute + 10*time.Second)
			warned, informed := reported()
			if warned != outage+1 {
				t.Errorf("outage %d: %d warnings in total", outage, warned)
			}
			if outage == 0 && before != 1 {
				t.Errorf("logged a changed reason %d times within 20 s, want once", before)
			}
			if informed < 1 || informed > 6*(outage+1) {
				t.Errorf("outage %d: logged a changed reason %d times in total", outage, informed)
			}
			way.fails.Store(nil)
			time.Sleep(time.Minute)
			if up := w.count("tandem_replica_up", w.d[0].addr); up != 1 {
				t.Fatalf("outage %d: the replica is not back", outage)
			}
		}
	})
}

// If the router's own machine can open no connection, the engines are not to blame: none is taken out of
// use and none is ejected.
func TestOurOwnExhaustionBlamesNoReplica(t *testing.T) {
	way := &blocked{}
	in(t, setup{config: longAnswers, options: way.between}, func(w *world) {
		way.fails.Store(new(exhausted))
		for _, e := range w.all() {
			w.net.Cut(e.addr)
		}
		time.Sleep(10 * time.Second)
		for range 4 {
			if got := w.ask(completion(false)); got.status < 500 {
				w.t.Fatalf("status %d, though no connection can be opened: this test shows nothing", got.status)
			}
		}
		if n := w.count("tandem_replica_up", ""); n != 4 {
			w.t.Errorf("%d replicas are up, want 4", n)
		}
		w.blamed(0, 0)
		way.fails.Store(nil)
		w.usable("connections can be made again")
	})
}

// An engine is too busy to accept another connection but shows signs of life on its open ones. It stays in
// use.
func TestABusyEngineThatTakesNoConnectionServesOn(t *testing.T) {
	way := &blocked{addr: "d0.internal:8000"}
	quick := func(c *config.Config) {
		longAnswers(c)
		c.Timeouts.Connect = 500 * time.Millisecond
	}
	in(t, setup{prefill: 1, decode: 1, config: quick, options: way.between}, func(w *world) {
		w.net.Cut(w.d[0].addr) // so that a load poll needs a new connection
		way.fails.Store(new(dropped))
		for range 20 {
			w.o.fleet.Endpoint(replica.ID(w.d[0].addr)).MarkAlive()
			time.Sleep(200 * time.Millisecond)
		}
		if n := w.count("tandem_replica_up", w.d[0].addr); n != 1 {
			w.t.Error("not up, though it shows signs of life")
		}
		way.fails.Store(nil)
	})
}

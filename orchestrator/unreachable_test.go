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

// blocked is a network on which new connections may fail in a way of one's own.
type blocked struct {
	addr  string // "" for every address
	fails atomic.Pointer[func(ctx context.Context) error]
}

// between puts it between a router and its engines.
func (b *blocked) between(o *Options) {
	inner := o.Dial
	o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if f := b.fails.Load(); f != nil && (b.addr == "" || b.addr == addr) {
			return nil, &net.OpError{Op: "dial", Net: "mem", Err: (*f)(ctx)}
		}
		return inner(ctx, network, addr)
	}
}

// dropped is a host that answers nothing, whose packets are lost.
func dropped(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// exhausted is a router that has no file descriptor left.
func exhausted(context.Context) error { return os.NewSyscallError("socket", syscall.EMFILE) }

// A connection that nobody takes is an engine that cannot be reached, whether it is refused or not answered
// at all: it is out at once, as it is when a request finds the same.
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
			w.t.Error("still up, though nobody takes a connection there")
		}
		if n := w.count("tandem_replica_up", ""); n != 3 {
			w.t.Errorf("%d replicas are up, want 3 of 4", n)
		}
		way.fails.Store(nil)
		time.Sleep(20 * time.Second)
		if n := w.count("tandem_replica_up", ""); n != 4 {
			w.t.Errorf("%d replicas are up in the end, want all", n)
		}
	})
}

// A replica that is away refuses, resets and does not answer in turn. One line warns that it is not usable,
// and not one for each reason; another reason is told when it is first seen, then once a minute at most.
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
		synctest.Wait() // for whoever writes
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
				t.Errorf("outage %d: warned %d times in all", outage, warned)
			}
			if outage == 0 && before != 1 {
				t.Errorf("told %d times of another reason within 20 s, want once", before)
			}
			if informed < 1 || informed > 6*(outage+1) {
				t.Errorf("outage %d: told %d times in all of another reason", outage, informed)
			}
			way.fails.Store(nil)
			time.Sleep(time.Minute)
			if up := w.count("tandem_replica_up", w.d[0].addr); up != 1 {
				t.Fatalf("outage %d: it is not back", outage)
			}
		}
	})
}

// That this machine can make no connection says nothing of the engines: none is taken out, and none is
// ejected for it.
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
				w.t.Fatalf("status %d without a connection: this test tests nothing", got.status)
			}
		}
		if n := w.count("tandem_replica_up", ""); n != 4 {
			w.t.Errorf("%d replicas are up, want all", n)
		}
		w.blamed(0, 0)
		way.fails.Store(nil)
		w.usable("connections can be made again")
	})
}

// An engine whose machine is too busy to take another connection, and which gives signs of life on those that
// it has, serves on.
func TestABusyEngineThatTakesNoConnectionServesOn(t *testing.T) {
	way := &blocked{addr: "d0.internal:8000"}
	quick := func(c *config.Config) {
		longAnswers(c)
		c.Timeouts.Connect = 500 * time.Millisecond
	}
	in(t, setup{prefill: 1, decode: 1, config: quick, options: way.between}, func(w *world) {
		w.net.Cut(w.d[0].addr) // so that a scrape needs a new one
		way.fails.Store(new(dropped))
		for range 20 {
			w.o.fleet.Endpoint(replica.ID(w.d[0].addr)).MarkAlive()
			time.Sleep(200 * time.Millisecond)
		}
		if n := w.count("tandem_replica_up", w.d[0].addr); n != 1 {
			w.t.Error("not up, though it gives signs of life")
		}
		way.fails.Store(nil)
	})
}

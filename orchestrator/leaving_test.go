package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// laggard is a connection to an engine whose answers are late, for example because its API process waits
// for a CPU.
type laggard struct {
	net.Conn
	late net.Conn // delivers what conn has received
}

// late returns conn with all received bytes delayed by lag nanoseconds.
func late(conn net.Conn, lag *atomic.Int64) laggard {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := conn.Read(b)
			time.Sleep(time.Duration(lag.Load()))
			if _, errWrite := theirs.Write(b[:n]); err != nil || errWrite != nil {
				return
			}
		}
	}()
	return laggard{conn, ours}
}

func (c laggard) Read(b []byte) (int, error)        { return c.late.Read(b) }
func (c laggard) SetReadDeadline(t time.Time) error { return c.late.SetReadDeadline(t) }
func (c laggard) SetDeadline(t time.Time) error {
	return errors.Join(c.late.SetDeadline(t), c.Conn.SetWriteDeadline(t))
}
func (c laggard) Close() error { return errors.Join(c.Conn.Close(), c.late.Close()) }

// A client leaves at any time of its request: while the prefill engine computes, after it has finished,
// while its answer is on the way, and while the decode leg is sent, reads blocks or answers. No lease is
// left.
func TestNoLeaseIsLeftByAClientThatLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		prefill, lag time.Duration
	}{
		"a short prefill":                       {20 * time.Millisecond, 0},
		"a short prefill, late answers":         {20 * time.Millisecond, 150 * time.Millisecond},
		"a prefill of a second, late answers":   {time.Second, 150 * time.Millisecond},
		"a prefill of a second, latest answers": {time.Second, 600 * time.Millisecond},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream=%v", name, stream), func(t *testing.T) {
				var lag atomic.Int64
				s := setup{engine: func(_ string, o *enginesim.Options) { o.Core.Cost.T0 = c.prefill.Seconds() }}
				s.options = func(o *Options) {
					dial := o.Dial
					o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := dial(ctx, network, addr)
						if err == nil && addr[0] == 'p' {
							conn = late(conn, &lag)
						}
						return conn, err
					}
				}
				in(t, s, func(w *world) {
					lag.Store(int64(c.lag))
					leaveAtEveryMoment(w, stream, c.prefill+2*c.lag+transfer+5*decodeStep)
					lag.Store(0)
				})
			})
		}
	}
}

// leaveAtEveryMoment sends a request again and again, and leaves a little later each time.
func leaveAtEveryMoment(w *world, stream bool, until time.Duration) {
	step := max(until/150, 3*time.Millisecond)
	left, asked := 0, 0
	var first time.Duration
	for after := time.Millisecond; after < until; after += step {
		p := prompt{path: "/v1/completions", body: fmt.Sprintf(
			`{"model":"sim","max_tokens":40,"temperature":0,%s"prompt":"number %d %s"}`, streaming(
				stream,
			), asked, words(60))}
		asked++
		go func() {
			time.Sleep(after)
			leave(w, nil)
		}()
		_ = w.ask(p)
		time.Sleep(4 * time.Second)
		if w.held() > 0 {
			if left++; first == 0 {
				first = after
			}
			time.Sleep(35 * time.Second)
		}
	}
	if left > 0 {
		w.t.Errorf("%d of %d departed clients left a lease behind, the first after %v", left, asked, first)
	}
}

// After the client has left, an attempt waits for a prefill engine's answer that is due soon, and ends
// quickly otherwise.
func TestWhatIsDueIsWaitedFor(t *testing.T) {
	gone := errors.New("the client left")
	for name, c := range map[string]struct {
		cause error
		due   time.Duration // from the client's departure on
		want  time.Duration
	}{
		"in the middle of a long prefill": {gone, nearlyDue + 1, shortGrace},
		"due":                             {gone, nearlyDue, nearlyDue + overdue},
		"overdue":                         {gone, -5 * time.Second, overdue},
		"the phase took too long":         {errPhaseTimeout, 0, 0},
		"the router stops":                {errStopped, 0, shortGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancelCause(t.Context())
				defer leave(nil)
				var clock attemptClock
				own := clock.begin(ctx)
				defer clock.end()
				clock.grace.expect(time.Now().Add(c.due))
				if c.cause == errPhaseTimeout {
					clock.cancel(c.cause) // the attempt's own timer does this
				} else {
					leave(c.cause)
				}
				begun := time.Now()
				<-own.Done()
				if got := time.Since(begun); got != c.want || !errors.Is(context.Cause(own), c.cause) {
					t.Errorf("the attempt ended after %v with %v, want %v", got, context.Cause(own), c.want)
				}
			})
		})
	}
}

// A client leaves at about the time when its prefill engine is found frozen. The leg outlives the client
// for a moment, but the request counts as left by its client, not as a failure.
func TestAClientLeavesAnEngineThatStandsStill(t *testing.T) {
	for after := 8 * time.Second; after < 9900*time.Millisecond; after += 200 * time.Millisecond {
		in(t, setup{prefill: 1, config: longPauses}, func(w *world) {
			w.at("prefill", func(string) {
				w.at("prefill", nil)
				fault(enginesim.Fault{Kind: "freeze", For: 30 * time.Second})(w, w.p[0])
			})
			p := w.begin(completion(true))
			time.Sleep(after)
			p.leave()
			p.end()
			time.Sleep(25 * time.Second)
			if n := w.count("tandem_requests_total", goneName); n != 1 {
				t.Errorf("a client that left after %v does not count as gone", after)
			}
		})
	}
}

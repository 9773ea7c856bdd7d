package policies

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// many is a fleet of n replicas on each side.
func many(n int) cluster.Config {
	var c cluster.Config
	for side := range c.Nodes {
		c.Nodes[side] = make([]cluster.Node, n)
	}
	return c
}

func TestEnvoyEjects(t *testing.T) {
	e := newEnvoy(many(8))
	now := cluster.Time(0)
	fail := func(i, times int) {
		for range times {
			e.failed(cluster.Decode, i, now)
		}
	}
	fail(0, 4)
	e.well(cluster.Decode, 0, now)
	fail(0, 4)
	if e.out(cluster.Decode, 0, now) {
		t.Fatal("ejected after four failures in a row")
	}
	fail(0, 1)
	fail(1, 5)
	if !e.out(cluster.Decode, 0, now) || e.out(cluster.Decode, 1, now) || e.out(cluster.Prefill, 0, now) {
		t.Fatal("want the first of eight replicas ejected, and no second replica")
	}
	for times, wait := range []time.Duration{30 * time.Second, time.Minute} {
		if at := now.Add(wait - time.Second); !e.out(cluster.Decode, 0, at) {
			t.Errorf("ejection %d: ended before %v", times+1, wait)
		}
		if now = now.Add(wait); e.out(cluster.Decode, 0, now) {
			t.Errorf("ejection %d: did not end after %v", times+1, wait)
		}
		fail(0, 5)
	}
}

func TestBreakerOpensAndCloses(t *testing.T) {
	b := newBreaker(many(2))
	now := cluster.Time(0)
	fail := func(times int) {
		for range times {
			b.failed(cluster.Prefill, 1, now)
		}
	}
	fail(9)
	if b.out(cluster.Prefill, 1, now) {
		t.Fatal("open after nine failures")
	}
	fail(1)
	if at := now.Add(59 * time.Second); !b.out(cluster.Prefill, 1, at) {
		t.Fatal("not open for a minute after ten")
	}
	if now = now.Add(time.Minute); b.out(cluster.Prefill, 1, now) {
		t.Fatal("not half-open after a minute")
	}
	fail(1)
	if !b.out(cluster.Prefill, 1, now) {
		t.Fatal("a failure in the half-open state does not open the breaker")
	}
	now = now.Add(time.Minute)
	for range 3 {
		b.well(cluster.Prefill, 1, now)
	}
	if fail(1); b.out(cluster.Prefill, 1, now) {
		t.Error("three successes did not close the breaker")
	}
}

func TestHowOftenTheFieldTriesAgain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, tt := range map[string]struct {
		detector
		tries       int
		least, most time.Duration // wait before the second try
	}{
		"envoy":   {newEnvoy(many(1)), 3, 0, 25 * time.Millisecond},
		"breaker": {newBreaker(many(1)), 6, 40 * time.Millisecond, 60 * time.Millisecond},
	} {
		n := 1
		for ; ; n++ {
			after, ok := tt.again(n, rnd)
			if n == 1 && (after < tt.least || after > tt.most) {
				t.Errorf("%s waits %v", name, after)
			}
			if !ok {
				break
			}
		}
		if n != tt.tries {
			t.Errorf("%s tries %d times, want %d", name, n, tt.tries)
		}
	}
}

// A policy does not see ejected replicas, and the index that it picks is mapped back to the right replica.
func TestWhoIsOutIsNotPicked(t *testing.T) {
	c := many(3)
	e := newEjecting(leastRequests{}, newEnvoy(c), c, false, nil)
	q := query(1000)
	q.PerToken = func(p, d int) float64 { return float64(10*p + d) }
	ps := []Replica{{Requests: 1}, {Requests: 2}, {Requests: 3}}
	ds := []Replica{{Requests: 1}, {Requests: 3}, {Requests: 2}}
	if p, d := e.Pick(q, ps, ds); p != 0 || d != 0 {
		t.Errorf("no replica is ejected: picked %d and %d", p, d)
	}
	for range envoyRow {
		e.failed(cluster.Prefill, 0, q.Now)
	}
	e.gone[cluster.Decode][0] = true
	if p, d := e.Pick(q, ps, ds); p != 1 || d != 2 {
		t.Errorf("picks %d and %d, want 1 and 2", p, d)
	}
	for i := range ds {
		e.gone[cluster.Decode][i] = true
	}
	if _, d := e.Pick(q, ps, ds); d != 0 {
		t.Errorf("with no replica left it picks %d, want the best one", d)
	}
}

// run plays conversations with troubles, and checks that no request is still counted at the end.
func run(t *testing.T, name, troubles string) (cluster.Router, *cluster.Result) {
	t.Helper()
	c := fleet()
	c.Nodes[cluster.Decode] = append(c.Nodes[cluster.Decode], c.Nodes[cluster.Decode]...)
	var err error
	if c.Troubles, err = cluster.ParseTroubles(troubles); err != nil {
		t.Fatal(err)
	}
	r, err := New(name, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	res := played(t, name, c, r, conversations(300))
	if len(res.Records) != 300 {
		t.Errorf("%s: %d of 300 requests", name, len(res.Records))
	}
	switch x := r.(type) {
	case *Field:
		checkEmpty(t, name, x)
		if len(x.guard.tries) > 0 {
			t.Errorf("%s still counts failures of %d ended requests", name, len(x.guard.tries))
		}
	case *Tandem:
		checkReleased(t, name, x, res.End)
	}
	return r, res
}

func checkReleased(t *testing.T, name string, x *Tandem, end time.Duration) {
	t.Helper()
	if x.underWay.live != 0 || x.underWay.retrying != 0 {
		t.Errorf("%s: %d requests at the end, and %d that are retried",
			name, x.underWay.live, x.underWay.retrying)
	}
	for _, s := range x.decode.Status(cluster.Time(end)) {
		if s.Leases != 0 || s.Promised != 0 {
			t.Errorf("%s: a decode replica at the end: %+v", name, s)
		}
	}
	for _, s := range x.prefill.Status(cluster.Time(end)) {
		if s.Requests != 0 || s.Tokens != 0 {
			t.Errorf("%s: a prefill replica has %d requests at the end", name, s.Requests)
		}
	}
}

func outcomes(res *cluster.Result) (retried, failed int) {
	for _, x := range res.Records {
		if x.Failures > 0 {
			retried++
		}
		if x.Failed {
			failed++
		}
	}
	return retried, failed
}

// Under any failure each request ends once, and no request is still counted at the end. Oracles receive no
// failures, so the test skips them.
func TestEveryPolicyGoesOnWhenReplicasFail(t *testing.T) {
	const all = "d0:fail@5s+10s,p0:fail=0.5@5s+15s,d1:gone@8s+4s,p1:slow=20@10s+5s,p2:gone@20s+3s,d0:gone@22s+2s"
	for _, name := range append(Names(), "lmetric+breaker") {
		if strings.HasPrefix(name, "oracle") {
			continue
		}
		_, res := run(t, name, all)
		if retried, failed := outcomes(res); retried == 0 || failed > 30 {
			t.Errorf("%s: %d requests failed somewhere, %d clients got an error", name, retried, failed)
		}
	}
}

// Tandem detects a decode replica that answers every request with an error: production's decision ejects
// the replica, retries the failed requests elsewhere, and readmits the replica later.
func TestTandemEjectsWhoFails(t *testing.T) {
	r, res := run(t, "tandem-split", "d0:fail@5s+10s")
	x := r.(*Tandem)
	retried, failed := outcomes(res)
	if failed != 0 || retried == 0 || retried > 25 || x.Stats.Ejected == 0 || x.Stats.Retried < retried {
		t.Errorf("%d retried, %d failed, %+v", retried, failed, x.Stats)
	}
	for _, s := range x.planner.Outliers().Status(cluster.Time(res.End)) {
		if s.State == outlier.Ejected {
			t.Errorf("still ejected after a quarter of a minute without failures: %+v", s)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const page = `# HELP a b
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.5
vllm:num_preemptions_total{engine="0"} 3.0
tandem_decode_free_blocks{replica="d0"} 41
tandem_decode_free_blocks{replica="d1"} 12
tandem_queue_waiting 2
tandem_leases{pool="decode",replica="d0"} 0
odd
`

// servePage starts a server that shows text at /metrics, like an engine or a router.
func servePage(t *testing.T, text string) (at string, port int) {
	t.Helper()
	at = serveText(t, 200, text)
	return at, portOf(t, at)
}

func portOf(t *testing.T, at string) (port int) {
	t.Helper()
	u, err := url.Parse(at)
	if err == nil {
		port, err = strconv.Atoi(u.Port())
	}
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestAPageIsRead(t *testing.T) {
	at, _ := servePage(t, page)
	s, err := scrape(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
		found  bool
	}{
		{"tandem_decode_free_blocks", nil, 53, true},
		{"tandem_decode_free_blocks", []string{label("replica", "d1")}, 12, true},
		{"tandem_decode_free_blocks", []string{label("replica", "d2")}, 0, false},
		{"tandem_queue_waiting", nil, 2, true},
		{"tandem_queue", nil, 0, false},
	} {
		if got, found := s.sum(c.name, c.labels...); got != c.want || found != c.found {
			t.Errorf("%s %v: %v, %v", c.name, c.labels, got, found)
		}
	}
}

// TestRoomIsWatched checks that the watch continues until it is stopped.
func TestRoomIsWatched(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, page)
	}))
	defer server.Close()
	s := stage{engines: []*engine{
		{Name: "d0", Role: consumer, Port: portOf(t, server.URL), Blocks: 81}, {Name: "p0", Role: producer},
	}}
	w := s.watchRoom(t.Context(), &router{admin: server.URL})
	if err := eventually(t.Context(), 10*time.Second, func() error {
		if asked.Load() < 3 { // the first look makes two requests, and it has ended when the second look begins
			return errors.New("it does not look")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if l := w.looks[0]; l.free[0] != 40 || l.ledger[0] != 41 || l.waiting != 2 {
		t.Errorf("%+v", l)
	}
	if engine, ledger, waiting := w.tightest(); engine != 40 || ledger != 41 || waiting != 2 {
		t.Errorf("the tightest look has %d, %d and %d", engine, ledger, waiting)
	}
	if err := awaitReleased(t.Context(), &router{admin: server.URL}); err != nil {
		t.Error(err)
	}
}

// TestLeasesAreMissed checks that leases which the router still holds are reported.
func TestLeasesAreMissed(t *testing.T) {
	at, _ := servePage(t, strings.Replace(page, `replica="d0"} 0`, `replica="d0"} 1`, 1))
	if err := awaitReleased(t.Context(), &router{admin: at}); err == nil {
		t.Error("a remaining lease was not reported")
	}
}

// TestTheIndexIsAwaited checks that the wait continues while any part of the index is missing.
func TestTheIndexIsAwaited(t *testing.T) {
	at, _ := servePage(t, `tandem_index_trust{pool="decode",replica="d0",state="live"} 1`)
	if err := awaitIndex(t.Context(), &router{admin: at}); err != nil {
		t.Error(err)
	}
	at, _ = servePage(t, `tandem_index_trust{pool="decode",replica="d0",state="syncing"} 1`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := awaitIndex(ctx, &router{admin: at}); err == nil {
		t.Error("an incomplete index counts as complete")
	}
}

// TestALedgerMayLagBehindWhatItSent checks that the ledger may be late about requests that the router just
// sent, but must not promise more blocks than that.
func TestALedgerMayLagBehindWhatItSent(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	looked := func(from float64, engine, ledger int) look {
		return look{begun: at(from), asked: at(from + .05), free: []int{engine}, ledger: []int{ledger}}
	}
	sent := func(when float64, tokens int, to string) record {
		r := record{Decode: to, Prompt: tokens, Time: at(when - .5)}
		r.Phases.Prefill, r.Phases.Queue = 300, 200
		return r
	}
	grew := func(from, seconds float64) record {
		r := sent(from, 300, "d0")
		r.Output = 10 * blockTokens
		r.Phases.Total = 500 + seconds*1e3
		return r
	}
	for name, c := range map[string]struct {
		looks        []look
		records      []record
		log          string
		most, beyond int
	}{
		"below": {[]look{looked(0, 70, 60), looked(1, 70, 70)}, nil, "", -10, -10},
		"above": {[]look{looked(0, 50, 60), looked(1, 50, 50)}, nil, "", 10, 10},
		"above, by what was sent": {
			[]look{looked(5, 50, 60), looked(6, 50, 50)}, []record{sent(4.5, 9*blockTokens, "d0")}, "", 10, 0,
		},
		"above, by what another was sent": {
			[]look{looked(5, 50, 60), looked(6, 50, 50)}, []record{sent(4.5, 9*blockTokens, "d1")}, "", 10, 10,
		},
		"above, by what was sent long ago": {
			[]look{looked(5, 50, 60), looked(6, 50, 50)}, []record{sent(3, 9*blockTokens, "d0")}, "", 10, 10,
		},
		// The answer grows by 82 tokens from 3.5 s to 6.05 s.
		"above, by what grew": {
			[]look{looked(5, 50, 60), looked(6, 50, 50)}, []record{grew(2, 10)}, "", 10, 7,
		},
		"the engine had them again": {[]look{looked(5, 50, 60), looked(6, 60, 50)}, nil, "", 0, 0},
		"above, by what a pair was tried with": {
			[]look{looked(5, 50, 56), looked(6, 50, 50)},
			nil,
			"tandem serves\ntime=1970-01-01T00:16:44Z level=INFO " +
				`msg="trial failed" prefill=p0 decode=d0 kind="no answer in time" why=head`, 6, -1,
		},
		"above, by what a replica was tried with": {
			[]look{looked(5, 50, 56), looked(6, 50, 50)},
			nil,
			`time=1970-01-01T00:16:44Z level=INFO msg="trial failed" replica=d0 leg=decode kind=x why=y`, 6, -1,
		},
		"above, by what a pair was tried with long ago": {
			[]look{looked(5, 50, 56), looked(6, 50, 50)},
			nil,
			`time=1970-01-01T00:16:42Z level=INFO msg="trial failed" prefill=p0 decode=d0 kind=x why=y`, 6, 6,
		},
		"above, by what another attempt was made with": {
			[]look{looked(5, 50, 60), looked(6, 50, 50)},
			[]record{{ID: "a1", Decode: "d1", Prompt: 9 * blockTokens, Time: at(0)}},
			`time=1970-01-01T00:16:44Z level=INFO msg="trying again elsewhere" id=a1 phase=decode replica=d0`,
			10, 0,
		},
		"above, by what another pair was tried with": {
			[]look{looked(5, 50, 56), looked(6, 50, 50)},
			nil,
			`time=1970-01-01T00:16:44Z level=INFO msg="trial failed" prefill=p0 decode=d1 kind=x why=y`, 6, 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch{engines: []*engine{{Name: "d0"}}, looks: c.looks}
			if x := w.excess(c.records, brokenOffIn(c.log)); x.most != c.most || x.beyond != c.beyond || x.looks != 1 {
				t.Errorf("%+v, want %d and %d", x, c.most, c.beyond)
			}
		})
	}
}

// TestScarcityIsJudged checks that the act fails when scarcity did not have one of its expected effects.
func TestScarcityIsJudged(t *testing.T) {
	enough := func() *scarcity {
		return &scarcity{
			removed: []removed{{"p0", producer, 5}}, waited: 3, crowd: 2, fullest: 4,
			excess: excess{most: 1, beyond: -4, looks: 9},
		}
	}
	if err := enough().verdict(true); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*scarcity){
		"evicted nothing":        func(c *scarcity) { c.removed[0].blocks = 0 },
		"0 requests waited":      func(c *scarcity) { c.waited = 0 },
		"0 at once":              func(c *scarcity) { c.crowd = 0 },
		"had 30 blocks free":     func(c *scarcity) { c.fullest = 30 },
		"promised 2 blocks":      func(c *scarcity) { c.excess.beyond = 2 },
		"no ledger was compared": func(c *scarcity) { c.excess.looks = 0 },
	} {
		c := enough()
		change(c)
		if err := c.verdict(true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the verdict is %v, want %q", err, want)
		}
	}
	c := enough()
	c.waited, c.removed = 0, nil
	if err := c.verdict(false); err != nil {
		t.Errorf("the verdict requires scarcity when it is optional: %v", err)
	}
	var table strings.Builder
	c.print(&table)
	if !strings.Contains(table.String(), "waited") {
		t.Error(errors.New(table.String()))
	}
}

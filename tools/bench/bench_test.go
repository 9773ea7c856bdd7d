package main

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// startUpstream runs one neutral engine and returns its address.
func startUpstream(t *testing.T) (*upstream, string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, done := &upstream{}, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); u.serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })
	return u, ln.Addr().String()
}

// TestReference drives the whole chain: raw load, the plain front, both legs at two engines.
func TestReference(t *testing.T) {
	testFront(t, func(prefill, decode []string) (http.Handler, error) {
		return &reference{prefill: prefill, decode: decode, transport: newTransport()}, nil
	})
}

// TestBare does the same with the lean client.
func TestBare(t *testing.T) {
	testFront(t, func(prefill, decode []string) (http.Handler, error) { return newBare(prefill, decode) })
}

func testFront(t *testing.T, front func(prefill, decode []string) (http.Handler, error)) {
	p, prefill := startUpstream(t)
	d, decode := startUpstream(t)
	h, err := front([]string{"http://" + prefill}, []string{"http://" + decode})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	b := &bench{}
	total := 0
	for _, stream := range []bool{false, true} {
		r, err := b.load(t.Context(), addr, 4, 50*time.Millisecond, stream)
		if err != nil {
			t.Fatalf("stream %v: %v", stream, err)
		}
		total += r.answers
	}
	if got := int(p.prefills.Load()); got != total || int(p.requests.Load()) != total ||
		d.prefills.Load() != 0 || int(d.requests.Load()) != total {
		t.Errorf("%d answers took %d prefills of %d requests and %d decodes",
			total, got, p.requests.Load(), d.requests.Load())
	}
	if n, err := countPrefills([]string{prefill}); err != nil || int(n) != total {
		t.Errorf("countPrefills = %v %v, want %d", n, err, total)
	}
}

func TestDirect(t *testing.T) {
	p, prefill := startUpstream(t)
	_, decode := startUpstream(t)
	ask, closeBoth, err := directAsker(prefill, decode, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer closeBoth()
	r, err := drive(t.Context(), 20*time.Millisecond, []asker{ask})
	if err != nil || int(p.prefills.Load()) != r.answers {
		t.Errorf("drive = %+v %v after %d prefills", r, err, p.prefills.Load())
	}
	if name, err := servedModel(prefill); name != model || err != nil {
		t.Errorf("servedModel = %q %v", name, err)
	}
}

func TestLegs(t *testing.T) {
	body := completionBody(1, 64, true)
	leg1, err := prefillLeg(nil, body)
	if err != nil || !strings.Contains(string(leg1),
		`"stream":false,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true`) {
		t.Errorf("leg 1 = %q %v", leg1, err)
	}
	leg2, err := decodeLeg(nil, body, []byte(`{"kv_transfer_params": {"a":{"b":[1]}}, "x":1}`))
	if want := `"stream":true,"max_tokens":64,"kv_transfer_params":{"a":{"b":[1]}}}`; err != nil ||
		!strings.HasSuffix(string(leg2), want) {
		t.Errorf("leg 2 = %q %v, want the end %q", leg2, err, want)
	}
	for _, answer := range []string{`{}`, `{"kv_transfer_params":null}`, `{"kv_transfer_params":{`} {
		if _, err := decodeLeg(nil, body, []byte(answer)); err == nil {
			t.Errorf("leg 2 from %q was made", answer)
		}
	}
	if n := countPrompt(body); n != promptTokens {
		t.Errorf("prompt has %d tokens, want %d", n, promptTokens)
	}
}

func TestQuantile(t *testing.T) {
	before := []byte("gap_bucket{le=\"1\"} 5\ngap_bucket{le=\"2\"} 5\ngap_bucket{le=\"+Inf\"} 5\ngap_sum 1\n")
	after := []byte("gap_bucket{le=\"1\",pool=\"a\"} 5\ngap_bucket{le=\"2\",pool=\"a\"} 9\n" +
		"gap_bucket{le=\"+Inf\",pool=\"a\"} 9\n" +
		"gap_bucket{le=\"1\",pool=\"b\"} 0\ngap_bucket{le=\"2\",pool=\"b\"} 0\n" +
		"gap_bucket{le=\"+Inf\",pool=\"b\"} 0\n")
	for q, want := range map[float64]float64{0.5: 1.5, 1: 2, 0.25: 1.25} {
		if got, ok := quantile(before, after, "gap", q); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v = %v %v, want %v", q, got, ok, want)
		}
	}
	if _, ok := quantile(after, after, "gap", 0.5); ok {
		t.Error("a histogram without new samples has a quantile")
	}
}

func TestNsPerOp(t *testing.T) {
	out := "goos: linux\nBenchmarkPlan16x16-2   \t   32000\t     37123 ns/op\t 12 B/op\nBenchmarkPlan16x16-2 " +
		"10 41000.5 ns/op\nBenchmarkPlan16x16Cold-2 10 9 ns/op\nPASS\n"
	if got := nsPerOp(out, "BenchmarkPlan16x16"); !slices.Equal(got, []float64{37123, 41000.5}) {
		t.Errorf("nsPerOp = %v", got)
	}
}

func TestMedian(t *testing.T) {
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three = %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four = %v", got)
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-only", "index", "-blocks", "1,3", "-holders", "8", "-runs", "2"})
	if err != nil || !slices.Equal(o.index.Resident, []int{1_000_000, 3_000_000}) ||
		!slices.Equal(o.index.Holders, []int{8}) || o.index.Runs != 2 {
		t.Errorf("options = %+v %v", o, err)
	}
	for _, args := range [][]string{{"-blocks", "1,x"}, {"-holders", "0"}, {"-holders", ""}, {"-runs", "0"}} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%q passes", args)
		}
	}
}

func TestUnit(t *testing.T) {
	for name, want := range map[string]string{
		"lookup_6250_us": "us", "lookup_6250_us_10m_64h": "us", "ingest_mblocks_s_1m_256h": "M/s",
		"bytes_per_membership_churned": "B",
		"event_applied_p99_ms":         "ms", "machine_read_latency_ns": "ns", "front_rps": "1/s",
		"lookup_6250_allocs": "",
	} {
		if got := unit(name); got != want {
			t.Errorf("unit of %s = %q, want %q", name, got, want)
		}
	}
}

// The order changes from run to run, and each contender is measured in each run.
func TestInTurn(t *testing.T) {
	all := []contender{{name: "a"}, {name: "b"}, {name: "c"}}
	for n, want := range []string{"abc", "bca", "cab", "abc"} {
		var got strings.Builder
		for _, c := range inTurn(all, n) {
			got.WriteString(c.name)
		}
		if got.String() != want {
			t.Errorf("run %d: %s, want %s", n, got.String(), want)
		}
	}
}

// An engine reports a repeated prompt as cached, in whole blocks, and never completely.
func TestUpstreamCaches(t *testing.T) {
	u := &upstream{}
	first, second := completionBody(1, 1, false), completionBody(2, 1, false)
	for i, c := range []struct {
		body []byte
		want int
	}{{first, 0}, {first, 288}, {second, 0}, {first, 288}} {
		if got := u.cached(c.body, promptTokens); got != c.want {
			t.Errorf("question %d: %d cached, want %d", i, got, c.want)
		}
	}
}

// The program's table omits the figures of single index settings: the index prints its own table.
func TestTable(t *testing.T) {
	b := &bench{samples: map[string][]float64{}}
	b.add("lookup_6250_us", 70)
	b.add("lookup_6250_us_1m_64h", 70)
	var out strings.Builder
	b.table(&out)
	if got := out.String(); strings.Count(got, "lookup_6250_us") != 1 || !strings.Contains(got, "missed") {
		t.Errorf("table:\n%s", got)
	}
	if len(b.figures()) != 2 {
		t.Errorf("figures = %+v, want both", b.figures())
	}
}

package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
)

// samples hold a few lines of each format.
var samples = map[Format]string{
	Mooncake: `{"timestamp": 0, "input_length": 1030, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [0, 14]}
{"timestamp": 3000, "input_length": 1024, "output_length": 0, "hash_ids": [0, 1]}
`,
	Weka: `{"id":"a","models":["m"],"block_size":64,"tool":100,"sys":40,"reqs":[` +
		`{"t":0,"in":330,"out":10,"m":"m","p":-1,"keep":0,"new":[[1,5]],"think":0,"api":2},` +
		`{"t":3,"kind":"Explore","tool":64,"sys":0,"sub":[{"t":0,"in":130,"out":3,"m":"h","p":-1,"keep":0,` +
		`"new":[[50,2]],"think":0.5},{"t":4,"in":200,"out":3,"m":"h","p":1,"keep":2,"new":[[60,1]],"think":1}]},` +
		`{"t":9,"in":470,"out":7,"m":"m","p":0,"keep":4,"new":[[9,2],[20,1]],"think":6}]}
{"id":"b","models":["m"],"block_size":64,"tool":100,"sys":40,"reqs":[` +
		`{"t":0,"in":300,"out":10,"m":"m","p":-1,"keep":0,"new":[[1,4]],"think":0,"api":2}]}
`,
	LMCache: `{"g":"x","s":"1","t":100.5,"in":33,"out":5,"hash_ids":[1,2,3]}
{"g":"x","s":"2","t":101,"in":32,"out":5,"hash_ids":[1,2]}
{"g":"y","s":"1","t":101,"in":32,"out":5,"hash_ids":[1,2]}
{"g":"x","s":"1","t":103,"in":48,"out":5,"hash_ids":[1,2,4]}
`,
	Azure: "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 " +
		"18:15:50.9951690,396,109\n",
	Workload: `{"in":40,"out":24,"arrival_ns":46926808,"hash_ids":[0,1,2,3]}
{"in":40,"out":24,"arrival_ns":56926808,"hash_ids":[0,1,5,6]}
`,
	Capture: `{"tandem_trace":1,"block_size":16,"note":"n"}
{"t":0.25,"m":"llama","s":"a1","in":33,"out":20,"blocks":[17,4711]}
`,
}

func read(t *testing.T, text string, o Options) []*Session {
	t.Helper()
	r, err := Open(strings.NewReader(text), "sample", o)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEveryFormatIsKnownByItsFirstLine(t *testing.T) {
	for format, text := range samples {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		r, err := Open(&z, "sample", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Format() != format {
			t.Errorf("format %s, want %s", r.Format(), format)
		}
		all, err := r.All()
		if err != nil || len(all) < 1 {
			t.Errorf("%s: %d sessions, %v", format, len(all), err)
		}
	}
}

func TestMooncakeTicksAreSpread(t *testing.T) {
	raw := read(t, samples[Mooncake], Options{Raw: true})
	if raw[0].At != 0 || raw[1].At != 0 || raw[2].At != 3*time.Second {
		t.Errorf("raw times %v %v %v", raw[0].At, raw[1].At, raw[2].At)
	}
	spread := read(t, samples[Mooncake], Options{Seed: 7})
	for i, within := range [][2]time.Duration{
		{0, 1500 * time.Millisecond},
		{1500 * time.Millisecond, 3 * time.Second},
		{3 * time.Second, 6 * time.Second},
	} {
		if at := spread[i].At; at < within[0] || at >= within[1] {
			t.Errorf("request %d at %v, want it within %v", i, at, within)
		}
	}
	again := read(t, samples[Mooncake], Options{Seed: 7})
	other := read(t, samples[Mooncake], Options{Seed: 8})
	if again[1].At != spread[1].At || other[1].At == spread[1].At {
		t.Error("the seed does not decide the times")
	}
	if c := spread[2].Calls[0]; c.Input != 1024 || c.Output != 1 {
		t.Errorf("third request has %d tokens in, %d out, want 1024 and 1", c.Input, c.Output)
	}
}

func TestPromptsShareWhatTheirBlocksShare(t *testing.T) {
	all := read(t, samples[Mooncake], Options{})
	tokens := func(i int) []uint32 {
		return all[i].AppendTokens(nil, 0, all[i].AppendBlocks(nil, 0), uint64(i), 0)
	}
	a := tokens(0)
	b := tokens(1)
	c := tokens(2)
	if len(a) != 1030 || len(b) != 600 || len(c) != 1024 {
		t.Fatalf("%d, %d, %d tokens", len(a), len(b), len(c))
	}
	if !slices.Equal(a[:1024], c) || !slices.Equal(a[:512], b[:512]) || a[512] == b[512] {
		t.Error("tokens are not shared as blocks are")
	}
	for _, id := range all[0].AppendTokens(nil, 0, all[0].AppendBlocks(nil, 0), 0, 100) {
		if id >= 100 {
			t.Fatalf("token %d is beyond the vocabulary", id)
		}
	}
}

func TestWekaSessions(t *testing.T) {
	all := read(t, samples[Weka], Options{})
	s := all[0]
	if len(s.Calls) != 4 || s.Timed {
		t.Fatalf("session %+v", s)
	}
	for i, want := range []struct {
		after int
		think time.Duration
	}{{-1, 0}, {0, 1500 * time.Millisecond}, {1, time.Second}, {0, 6 * time.Second}} {
		if c := s.Calls[i]; c.After != want.after || c.Think != want.think {
			t.Errorf("call %d waits %v after %d, want %+v", i, c.Think, c.After, want)
		}
	}
	first := s.AppendBlocks(nil, 0)
	last := s.AppendBlocks(nil, 3)
	other := all[1].AppendBlocks(nil, 0)
	if len(first) != 5 || len(last) != 7 || !slices.Equal(first[:4], last[:4]) || first[4] == last[4] {
		t.Errorf("calls 0 and 3 have blocks %x and %x", first, last)
	}
	if !slices.Equal(first[:2], other[:2]) || first[2] == other[2] {
		t.Errorf("sessions of the same head share %x and %x", first, other)
	}
	sub := s.AppendBlocks(nil, 2)
	if len(sub) != 3 || !slices.Equal(sub[:2], s.AppendBlocks(nil, 1)) || sub[0] == first[0] {
		t.Errorf("sub-agent has blocks %x", sub)
	}
}

func TestLMCacheSessions(t *testing.T) {
	all := read(t, samples[LMCache], Options{})
	if len(all) != 3 || len(all[0].Calls) != 2 || all[0].Calls[1].After != 0 ||
		all[0].Calls[1].Think != 2500*time.Millisecond {
		t.Fatalf("%d sessions, the first %+v", len(all), all[0])
	}
	x, y := all[1].AppendBlocks(nil, 0), all[2].AppendBlocks(nil, 0)
	if !slices.Equal(x, all[0].AppendBlocks(nil, 1)[:2]) || x[0] == y[0] {
		t.Error("want blocks shared within a benchmark, and not between benchmarks")
	}
}

func TestTimes(t *testing.T) {
	if az := read(t, samples[Azure], Options{}); az[0].At != 0 || az[1].At != 4314579*time.Microsecond ||
		az[1].Calls[0].Input != 396 {
		t.Errorf("azure: %+v", az[1])
	}
	w := read(t, samples[Workload], Options{})
	if w[1].At != 56926808 || len(w[1].AppendBlocks(nil, 0)) != 2 {
		t.Errorf("workload: %+v", w[1])
	}
	c := read(t, samples[Capture], Options{})
	if c[0].At != 250*time.Millisecond || c[0].ID != "a1" || c[0].Calls[0].Model != "llama" {
		t.Errorf("capture: %+v", c[0])
	}
}

func TestCaptureIsReadBack(t *testing.T) {
	var out bytes.Buffer
	w, err := capture.NewWriter(&out, 16, "")
	if err != nil {
		t.Fatal(err)
	}
	asked := capture.Asked{Tenant: "a", API: "completions", Form: true, Expects: 9}
	for i := range 3 {
		x := capture.Request{
			T: float64(i), Input: 20 + i, Output: 3, Asked: asked, Blocks: []uint64{math.MaxUint64 - uint64(i)},
		}
		if err := w.Write(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	all := read(t, out.String(), Options{})
	if len(all) != 3 || all[2].Calls[0].Input != 22 || all[2].AppendBlocks(nil, 0)[0] != math.MaxUint64-2 ||
		all[2].Calls[0].Asked != asked {
		t.Errorf("read back %+v", all)
	}
}

// Every mistake is reported with its file, line and field.
func TestMistakesAreNamed(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "sample: the file is empty"},
		{"unknown", "hello\n", "sample: no known format"},
		{"arrivals", "client,window_start_s,rate_rps\n", "holds arrival rates"},
		{"json", samples[Mooncake] + "{\n", "sample:4: unexpected end of JSON input"},
		{"type", `{"timestamp":0,"input_length":"x","output_length":1,"hash_ids":[]}`, "input_length"},
		{"missing time", `{"input_length":3,"output_length":1,"hash_ids":[]}`, "sample:1: timestamp: is missing"},
		{
			"no tokens", `{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}`,
			"sample:1: input_length: 0 is no number of tokens",
		},
		{
			"blocks", `{"timestamp":0,"input_length":2000,"output_length":1,"hash_ids":[1]}`,
			"sample:1: hash_ids: 1 blocks of 512 tokens do not make 2000 tokens",
		},
		{
			"back", samples[Mooncake] + `{"timestamp":0,"input_length":3,"output_length":1,"hash_ids":[]}`,
			"sample:4: timestamp: goes back in time",
		},
		{
			"parent", `{"id":"a","block_size":64,"reqs":[{"t":0,"in":10,"out":1,"p":4,"keep":0,"new":[]}]}`,
			"sample:1: reqs[0].p: 4 is no earlier call",
		},
		{
			"keep", `{"id":"a","block_size":64,"reqs":[{"t":0,"in":10,"out":1,"p":-1,"keep":3,"new":[]}]}`,
			"sample:1: reqs[0].keep: 3 blocks that there are not",
		},
		{
			"sub", `{"id":"a","block_size":64,"reqs":[{"t":0,"sub":[{"t":0,"in":0}]}]}`, "sample:1: reqs[0].sub[0].in",
		},
		{"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n", "sample:2: TIMESTAMP"},
		{"azure columns", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "sample:2: 2 columns, not 3"},
		{"version", `{"tandem_trace":9}`, "sample:1: tandem_trace: version 9"},
		{"capture time", `{"tandem_trace":1}` + "\n" + `{"in":3,"out":2}`, "sample:2: t:"},
	} {
		r, err := Open(strings.NewReader(tt.text), "sample", Options{})
		if err == nil {
			_, err = r.All()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func TestLongLinesAreRefused(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(samples[Mooncake]),
		strings.NewReader(strings.Repeat(" ", maxLine+100<<10)+"{}"))
	r, err := Open(endless, "sample", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.All(); err == nil || !strings.Contains(err.Error(), "sample:4: longer than") {
		t.Errorf("error %v", err)
	}
}

func TestDrawKeepsRates(t *testing.T) {
	const text = "client,window_start_s,rate_rps,cv,family,p1,p2\n0,0,5,1,Gamma,0.4,9\n1,0,3,2,Weibull,0.6,2\n" +
		"1,600,2,1,Gamma,2,1\n2,90000,5,1,Gamma,1,1\n"
	ws, err := Arrivals(strings.NewReader(text), "sample", 0, time.Hour)
	if err != nil || len(ws) != 3 {
		t.Fatalf("%d windows, %v", len(ws), err)
	}
	counts := map[[2]int]float64{}
	const rounds = 50
	rnd := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		last := time.Duration(0)
		for _, a := range Draw(ws, 0.5, rnd) {
			if a.At < last {
				t.Fatal("arrivals go back in time")
			}
			last = a.At
			counts[[2]int{a.Client, int(a.At / WindowLength)}]++
		}
	}
	for at, rate := range map[[2]int]float64{{0, 0}: 5, {1, 0}: 3, {1, 1}: 2} {
		got, want := counts[at]/rounds, rate*0.5*WindowLength.Seconds()
		if math.Abs(got/want-1) > 0.03 {
			t.Errorf("client and window %v: %v arrivals, want %v", at, got, want)
		}
	}
	if _, err := Arrivals(strings.NewReader("0,0,5,1,Pareto,1,1\n"), "sample", 0, 0); err == nil ||
		!strings.Contains(err.Error(), "sample:1: family") {
		t.Errorf("error %v", err)
	}
}

// For any content of a file, reading ends with sessions that can be played, or with an error.
func FuzzRead(f *testing.F) {
	for format, text := range samples {
		f.Add(string(format), []byte(text))
	}
	f.Add("", []byte("client,window_start_s,rate_rps,cv,family,p1,p2\n0,0,5,1,Gamma,0.4,9\n"))
	f.Fuzz(func(t *testing.T, format string, data []byte) {
		_, _ = Arrivals(bytes.NewReader(data), "fuzz", 0, 0)
		r, err := Open(bytes.NewReader(data), "fuzz", Options{Format: Format(format)})
		if err != nil {
			return
		}
		for range 100 {
			s, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !strings.HasPrefix(err.Error(), "fuzz") {
					t.Fatalf("the error does not name its place: %v", err)
				}
				return
			}
			checkSession(t, s)
		}
	})
}

func checkSession(t *testing.T, s *Session) {
	for i, c := range s.Calls {
		if c.After >= i || c.After < -1 || c.Think < 0 || c.Input < 1 || c.Output < 1 {
			t.Fatalf("call %d: %+v", i, c)
		}
		if c.Input > 1<<16 {
			continue
		}
		blocks := s.AppendBlocks(nil, i)
		if got := s.AppendTokens(nil, i, blocks, 1, 0); len(got) != c.Input {
			t.Fatalf("call %d: %d tokens, want %d", i, len(got), c.Input)
		}
	}
}

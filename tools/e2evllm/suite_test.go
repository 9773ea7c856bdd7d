package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTheSuiteIsTheSameEveryTime checks that the generator follows its seed, and that the suite contains
// what it promises.
func TestTheSuiteIsTheSameEveryTime(t *testing.T) {
	a := newGenerator(3)
	b := newGenerator(3)
	kinds := map[string]int{}
	streams := map[string]int{}
	a.kinds, b.kinds = everyKind, everyKind
	for i := range 180 {
		x, y := a.next(), b.next()
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("request %d differs between two generators of one seed", i)
		}
		kinds[x.kind]++
		if x.body["stream"] == true {
			streams[x.kind]++
		}
		for _, forbidden := range []string{"kv_transfer_params", "ec_transfer_params"} {
			if _, ok := x.body[forbidden]; ok {
				t.Errorf("request %d carries %s", i, forbidden)
			}
		}
		if ids, ok := x.body["prompt"].([]int); ok && x.kind != overContext {
			if n := len(ids) + x.body["max_tokens"].(int); len(ids) == 0 || n > contextTokens {
				t.Errorf("request %d (%s) has %d tokens of prompt and answer", i, x.kind, n)
			}
		}
	}
	if len(kinds) < 30 {
		t.Errorf("%d kinds", len(kinds))
	}
	for kind, n := range kinds {
		// no engine streams prompt_logprobs
		if s := streams[kind]; (s == 0 || s == n) && kind != "prompt_logprobs" {
			t.Errorf("%d of %d requests of the kind %q are streamed", s, n, kind)
		}
	}
	if reflect.DeepEqual(newGenerator(3).next(), newGenerator(4).next()) {
		t.Error("another seed gave the same request")
	}
}

// serveText starts a server that answers every request with text.
func serveText(t *testing.T, status int, text string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const whole = `{"id":"c","choices":[{"index":0,"text":"one two","token_ids":[7,8],"finish_reason":"stop",` +
	`"stop_reason":"x","logprobs":{"tokens":["one"," two"],` +
	`"token_logprobs":[-1.5,-0.25]},"prompt_token_ids":[1,2,3]}],"usage":{"prompt_tokens":3,` +
	`"completion_tokens":2,"total_tokens":5}}`

const streamed = `data: {"id":"c","choices":[{"index":0,"text":"one","token_ids":[7],"logprobs":{"tokens":["one"],"token_logprobs":[-1.5]},"prompt_token_ids":[1,2,3]}]}

data: {"id":"c","choices":[{"index":0,"text":" two","token_ids":[8],"finish_reason":"stop","stop_reason":"x","logprobs":{"tokens":[" two"],"token_logprobs":[-0.25]}}]}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}

data: [DONE]

`

// TestAStreamIsTheSameAnswer reads one answer in whole and in streamed form.
func TestAStreamIsTheSameAnswer(t *testing.T) {
	a, err := ask(t.Context(), serveText(t, 200, whole), completions, map[string]any{})
	b, errStream := ask(t.Context(), serveText(t, 200, streamed), completions, map[string]any{"stream": true})
	if err := errors.Join(err, errStream); err != nil {
		t.Fatal(err)
	}
	if d := difference(a, b); d != "" || a.id != "r1" || len(a.choices) != 1 || a.choices[0].text != "one two" {
		t.Errorf("the two forms differ: %s (%+v)", d, a)
	}
}

// TestEveryDifferenceIsSeen changes one thing at a time.
func TestEveryDifferenceIsSeen(t *testing.T) {
	for _, change := range [][2]string{
		{"one two", "one too"},
		{"[7,8]", "[7,9]"},
		{"[1,2,3]", "[1,2]"},
		{`"finish_reason":"stop"`, `"finish_reason":"length"`},
		{`"stop_reason":"x"`, `"stop_reason":"y"`},
		{`"completion_tokens":2`, `"completion_tokens":3`},
		{"-0.25", "-0.26"},
		{`" two"]`, `" too"]`},
		{`"index":0`, `"index":1`},
	} {
		t.Run(change[0], func(t *testing.T) {
			a, err := ask(t.Context(), serveText(t, 200, whole), completions, map[string]any{})
			b, errOther := ask(t.Context(), serveText(t, 200, strings.Replace(whole, change[0], change[1], 1)),
				completions, map[string]any{})
			if err := errors.Join(err, errOther); err != nil {
				t.Fatal(err)
			}
			if difference(a, b) == "" {
				t.Errorf("%q instead of %q was not detected", change[1], change[0])
			}
		})
	}
	if difference(answer{status: 200}, answer{status: 400}) == "" {
		t.Error("another status was not detected")
	}
	if d := difference(answer{choices: []choice{{logprobs: []logprob{{"a", -1}}}}},
		answer{choices: []choice{{logprobs: []logprob{{"a", -1.00001}}}}}); d != "" {
		t.Errorf("rounding counts as a difference: %s", d)
	}
}

// TestBadAnswersAreErrors checks that the reader refuses malformed streams.
func TestBadAnswersAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"no end":              strings.Replace(streamed, "data: [DONE]", "", 1),
		"two ids":             strings.Replace(streamed, `"id":"c"`, `"id":"d"`, 1),
		"an error inside":     "data: {\"error\":{\"message\":\"m\"}}\n\ndata: [DONE]\n\n",
		"transfer parameters": "data: {\"id\":\"c\",\"choices\":[],\"kv_transfer_params\":{\"remote_host\":\"h\"}}\n\ndata: [DONE]\n\n",
		"no JSON":             "data: {\n\ndata: [DONE]\n\n",
		"another line":        "oops\n" + streamed,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ask(t.Context(), serveText(t, 200, text), completions,
				map[string]any{"stream": true}); err == nil {
				t.Error("a malformed stream was read as an answer")
			}
		})
	}
}

// TestTheVerdict checks that a phase fails for each reason, and passes without one.
func TestTheVerdict(t *testing.T) {
	ok := func(captured, delivered int) record {
		return record{Mode: "split", Outcome: "ok", Captured: captured, Delivered: delivered}
	}
	same := result{request: request{kind: "k", body: map[string]any{"stream": true}}}
	other := result{request: request{kind: "k"}, diff: "d"}
	for name, c := range map[string]struct {
		results []result
		records []record
		want    string
	}{
		"all held": {
			[]result{same},
			[]record{ok(32, 32), ok(0, 0), {Mode: "unsplit", Outcome: "ok", Captured: -1, Delivered: 64}},
			"",
		},
		"several samples": {
			[]result{same}, []record{ok(0, 0), {Mode: "unsplit", Outcome: "ok", Delivered: -1}}, "",
		},
		"a difference":  {[]result{same, other}, []record{ok(0, 0)}, "1 of 2 answers differ"},
		"nothing split": {[]result{same}, []record{{Mode: "local", Outcome: "ok"}}, "nothing was split"},
		"nothing split, where it may be": {
			[]result{same}, []record{{Mode: "local", Outcome: "ok"}}, "",
		},
		"wrong predictions": {[]result{same}, []record{ok(0, 0), ok(32, 0)}, "50.00 % of the predictions"},
		"wrong by blocks":   {[]result{same}, []record{ok(0, 640), ok(0, 0)}, "a block or more"},
		"nothing known":     {[]result{same}, []record{{Mode: "split", Outcome: "ok", Captured: -1}}, "0.00 %"},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(c.results, c.records)
			v.either = strings.HasSuffix(name, "where it may be")
			err := v.verdict(0.9)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the verdict is %v, want %q", err, c.want)
			}
			var table strings.Builder
			v.print(&table, phase{name: "the name"}, time.Second, 0)
			if !strings.Contains(table.String(), "the name") {
				t.Errorf("no table: %s", table.String())
			}
		})
	}
}

// TestStopLeavesNothing ends a process group whose leader has ended and whose member ignores SIGTERM.
func TestStopLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	deaf, err := startProcess("deaf", dir, nil, "sh", "-c",
		`(trap "" TERM; echo deaf; while :; do sleep 0.1; done) & exit 0`)
	if err != nil {
		t.Fatal(err)
	}
	polite, err := startProcess("polite", dir, nil, "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), 10*time.Second, func() error {
		if deaf.logTail(1) != "deaf" {
			return errors.New("it does not run yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := stop([]*process{deaf, polite}, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{deaf, polite} {
		if err := syscall.Kill(-p.pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s remains: %v", p.name, err)
		}
		if !p.left {
			t.Errorf("%s would get another signal by an id that another process may have", p.name)
		}
	}
	if err := stop([]*process{polite}, time.Second); err != nil {
		t.Errorf("stopping ended processes: %v", err)
	}
}

// TestPortsAreOursAlone checks that freePorts returns free ports, each once, outside the range from which
// the system assigns ports.
func TestPortsAreOursAlone(t *testing.T) {
	seen := map[int]bool{}
	for range 5 {
		ports, err := freePorts(4, 2)
		if err != nil || len(ports) != 4 {
			t.Fatal(ports, err)
		}
		for _, p := range ports {
			if seen[p] || p < firstPort || p > lastPort {
				t.Errorf("port %d", p)
			}
			seen[p] = true
		}
	}
}

// TestTheCauseIsTheFirstError checks that the cause is the first error of a log that ends with another
// process's error.
func TestTheCauseIsTheFirstError(t *testing.T) {
	p, err := startProcess("log", t.TempDir(), nil, "printf",
		"a warning\\nzmq.error.ZMQError: Address in use\\nRuntimeError: a core failed\\n")
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if got := p.cause(); got != "zmq.error.ZMQError: Address in use" {
		t.Errorf("the cause is %q", got)
	}
}

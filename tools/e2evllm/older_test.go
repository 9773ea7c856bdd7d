package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeEngine is an engine that answers with h.
func fakeEngine(t *testing.T, name string, h http.Handler) *engine {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	at, _ := url.Parse(s.URL)
	port, _ := strconv.Atoi(at.Port())
	return &engine{Name: name, Version: "0.20.0", Port: port, Blocks: prefillBlocks}
}

// briefly returns a context that is long enough for a fake engine's answer, and short for an engine that
// does not answer.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func holdsOr(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

// TestTheDoctorsFindings checks that the diagnosis accepts only the expected failed checks, and only the
// warning about the version.
func TestTheDoctorsFindings(t *testing.T) {
	const version = `{"check":"engine-version","status":"warning"}`
	for name, c := range map[string]struct {
		findings string
		failing  []string
		want     string
	}{
		"as wanted": {
			version + `,{"check":"events-disabled","status":"failed"},{"check":"x","status":"ok"}`,
			[]string{"events-disabled"},
			"",
		},
		"two engines":      {version + "," + version, nil, ""},
		"another failed":   {version + `,{"check":"replay-short","status":"failed"}`, nil, "replay-short"},
		"not failed":       {version, []string{"events-disabled"}, "failed are []"},
		"another warning":  {version + `,{"check":"clock","status":"warning"}`, nil, "clock"},
		"no warning":       {`{"check":"x","status":"ok"}`, nil, "warning are []"},
		"no report at all": {`]`, nil, "tandem doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			doctor := filepath.Join(t.TempDir(), "tandem")
			script := "#!/bin/sh\n[ \"$1 $4\" = 'doctor URL' ] && echo '{\"findings\":[" + c.findings + "]}'\n"
			if err := os.WriteFile(doctor, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			holdsOr(t, (&stage{tandem: doctor}).diagnosis(t.Context(), c.failing, "URL"), c.want)
		})
	}
}

// TestMissingMetricsAreNamed checks that a missing metric is named, even if another metric begins with its
// name.
func TestMissingMetricsAreNamed(t *testing.T) {
	e := fakeEngine(t, "o0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP vllm:a x\nvllm:a{engine=\"0\"} 1\nvllm:bc{} 2\nprocess 3\n")
	}))
	holdsOr(t, e.tells(t.Context(), []string{"vllm:a", "process"}), "")
	holdsOr(t, e.tells(t.Context(), []string{"vllm:a", "vllm:b"}), "lacks vllm:b")
}

// TestTheVerdictOnWholeRequests checks that the verdict fails for each of its reasons.
func TestTheVerdictOnWholeRequests(t *testing.T) {
	local := record{Mode: "local", Outcome: "ok", Tokenizer: "render"}
	unsplit := record{Mode: "unsplit", Outcome: "ok", Tokenizer: "render"}
	guessed := record{Mode: "unsplit", Outcome: "ok", Tokenizer: "estimate", Delivered: 64}
	wrong := record{Mode: "local", Outcome: "ok", Tokenizer: "render", Delivered: 64}
	for name, c := range map[string]struct {
		diff    string
		records []record
		want    string
	}{
		"all held":        {"", []record{local, unsplit}, ""},
		"only estimated":  {"", []record{local, unsplit, guessed}, ""},
		"a difference":    {"d", []record{local, unsplit}, "1 of 1 answers differ"},
		"a wrong promise": {"", []record{local, unsplit, wrong}, "2 of 3 predictions"},
		"split":           {"", []record{local, unsplit, {Mode: "split", Outcome: "ok"}}, "split is not"},
		"nothing local":   {"", []record{unsplit}, "split is not"},
		"nothing known": {
			"",
			[]record{{Mode: "local", Outcome: "ok", Captured: -1}, {Mode: "unsplit", Outcome: "ok", Captured: -1}},
			"0 of 0 predictions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sources := forgetEstimates(c.records)
			holdsOr(t, judge([]result{{diff: c.diff}}, c.records).whole(0.99), c.want)
			if sources["estimate"]+sources["render"]+sources[""] != len(c.records) {
				t.Errorf("sources %v", sources)
			}
		})
	}
	holdsOr(t, has(map[string]int{"render": 3}, "tokenize"), "from tokenize")
	holdsOr(t, has(map[string]int{"render": 3}, "render"), "")
}

// TestRefusalsInTheEnginesOwnWords checks that a refusal which the engine itself also gives is not a
// difference. Too many such refusals, or other words, still fail.
func TestRefusalsInTheEnginesOwnWords(t *testing.T) {
	e := fakeEngine(t, "o0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		fmt.Fprint(w, "no tools")
	}))
	const own = "refused with 400: no tools"
	all := make([]result, 20)
	all[1].diff = own
	all[2].diff = "refused with 400: no tokens"
	all[3].diff = "the text is"
	for i := range all {
		all[i].path = chat
	}
	kinds, err := e.refusesToo(t.Context(), all)
	if holdsOr(t, err, ""); len(kinds) != 1 || all[1].diff != "" || all[2].diff == "" || all[3].diff == "" {
		t.Errorf("both refuse %q: %+v", kinds, all[:4])
	}
	for i := range all {
		all[i].diff = own
	}
	_, err = e.refusesToo(t.Context(), all)
	holdsOr(t, err, "20 of 20 requests are refused")
}

// TestZerosThatAreNotTold checks that a missing count of cached tokens counts as zero. For a request with
// several samples the count stays unknown.
func TestZerosThatAreNotTold(t *testing.T) {
	records := []record{{ID: "a", Delivered: -1}, {ID: "b", Delivered: -1}, {ID: "a", Delivered: 32}}
	tellZeros([]result{{id: "a"}, {id: "b", request: request{body: map[string]any{"n": 2}}}}, records)
	if records[0].Delivered != 0 || records[1].Delivered != -1 || records[2].Delivered != 32 {
		t.Errorf("%+v", records)
	}
}

// TestOnlyRenderIsMissing checks that the proxy hides only render.
func TestOnlyRenderIsMissing(t *testing.T) {
	e := fakeEngine(t, "o0",
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	front := httptest.NewServer(withoutRender(e.url()))
	defer front.Close()
	if body, err := get(t.Context(), front.URL+"/tokenize"); err != nil || string(body) != "/tokenize" {
		t.Errorf("/tokenize: %s, %v", body, err)
	}
	_, err := get(t.Context(), front.URL+"/v1/chat/completions/render")
	holdsOr(t, err, "404")
}

// TestWhatARouterKnows checks that the wait for events compares every number.
func TestWhatARouterKnows(t *testing.T) {
	const good = `{"event_stream":{"replays":1},"book":{"index":"live","indexed_blocks":10,` +
		`"capacity_blocks":111,"block_size":32}}`
	for name, c := range map[string]struct {
		from, to string
		n        int
		good     bool
	}{
		"as wanted":      {"", "", 10, true},
		"however many":   {"", "", -1, true},
		"fewer blocks":   {"", "", 11, false},
		"not live":       {"live", "approximate", 10, false},
		"another size":   {`"block_size":32`, `"block_size":16`, 10, false},
		"other capacity": {"111", "112", 10, false},
		"lost":           {`"replays":1`, `"lost":1`, 10, false},
		"broken":         {`"replays":1`, `"decode_errors":1`, 10, false},
		"skipped":        {`"replays":1`, `"skipped_events":1`, 10, false},
		"two replicas":   {good, good + "," + good, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &router{admin: serveText(t, 200, `{"replicas":[`+strings.Replace(good, c.from, c.to, 1)+`]}`)}
			if _, err := r.follows(briefly(t), &engine{Blocks: 112}, c.n); (err == nil) != c.good {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestForetold checks that both numbers of the record equal the cached tokens.
func TestForetold(t *testing.T) {
	const records = `[{"id":"other","captured_tokens":0,"delivered_tokens":0},{"id":"r1",` +
		`"captured_tokens":320,"delivered_tokens":320}]`
	for name, c := range map[string]struct {
		records string
		good    bool
	}{
		"as wanted":      {records, true},
		"not foretold":   {strings.Replace(records, `"captured_tokens":320`, `"captured_tokens":288`, 1), false},
		"not delivered":  {strings.Replace(records, `"delivered_tokens":320`, `"delivered_tokens":288`, 1), false},
		"another's only": {strings.Replace(records, "r1", "r2", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &router{front: serveText(t, 200, whole), admin: serveText(t, 200, c.records)}
			if err := (&stage{}).foretells(briefly(t), r, []int{5}, 320); (err == nil) != c.good {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestTheFormOfEvents reads the form of events from the output of the event reader.
func TestTheFormOfEvents(t *testing.T) {
	for name, c := range map[string]struct{ out, want string }{
		"as wanted": {
			`{"batches":2,"frames":[3],"forms":{"BlockStored":["array"],"BlockRemoved":["array"]}}`, "",
		},
		"four frames": {`{"batches":2,"frames":[4],"forms":{"BlockStored":["array"]}}`, "instead of 3"},
		"both":        {`{"batches":2,"frames":[3,4],"forms":{"BlockStored":["array"]}}`, "instead of 3"},
		"maps":        {`{"batches":2,"frames":[3],"forms":{"BlockStored":["map"]}}`, "instead of array"},
		"some maps": {
			`{"batches":2,"frames":[3],"forms":{"BlockStored":["array","map"]}}`, "instead of array",
		},
		"nothing stored": {`{"batches":0,"frames":[3],"forms":{}}`, "instead of 3"},
		"no answer":      {``, "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) { holdsOr(t, spoken([]byte(c.out), "array", 3), c.want) })
	}
}

// aPair returns two engines. The usage of the prefill engine falls when the decode engine refuses a
// request with the parameters.
func aPair(t *testing.T, params string, refusal int) (p, d *engine) {
	t.Helper()
	used := "0.1"
	usage := func(value *string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "vllm:kv_cache_usage_perc{} %s\nvllm:nixl_num_kv_expired_reqs_total{} 0\n", *value)
		}
	}
	prefill := http.NewServeMux()
	decode := http.NewServeMux()
	none := "0"
	prefill.HandleFunc("/metrics", usage(&used))
	prefill.HandleFunc(completions,
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"kv_transfer_params":%s}`, params) })
	decode.HandleFunc("/metrics", usage(&none))
	decode.HandleFunc(completions, func(w http.ResponseWriter, _ *http.Request) {
		used = "0.0"
		w.WriteHeader(refusal)
	})
	return fakeEngine(t, "p0", prefill), fakeEngine(t, "d0", decode)
}

// TestHandingOver detects an additional parameter, a missing parameter, and a request that is not refused.
func TestHandingOver(t *testing.T) {
	const good = `{"do_remote_decode":false,"do_remote_prefill":true,"remote_block_ids":[[1]],` +
		`"remote_engine_id":"e","remote_host":"h","remote_num_tokens":200,` +
		`"remote_port":1,"remote_request_id":"r","remote_blocks_expiry_time":1.5,"transfer_mode":"pull",` +
		`"tp_size":1}`
	for name, c := range map[string]struct {
		params  string
		refusal int
		want    string
	}{
		"as wanted":   {good, 404, ""},
		"one more":    {strings.Replace(good, "{", `{"pp_size":1,`, 1), 404, "pp_size"},
		"one missing": {strings.Replace(good, `,"tp_size":1`, "", 1), 404, "its parameters are"},
		"not refused": {good, 200, "an unknown model: 200"},
		"no answer":   {"{", 404, "a prefill"},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := aPair(t, c.params, c.refusal)
			holdsOr(t, (&stage{engines: []*engine{p, d}}).handOver(t.Context(), p, d), c.want)
		})
	}
}

// TestCachedTokensOfAPair expects no cached tokens the first time and seven blocks the second time.
func TestCachedTokensOfAPair(t *testing.T) {
	const details = `"total_tokens":5,"prompt_tokens_details":{"cached_tokens":%d}`
	for name, c := range map[string]struct {
		first, second int
		want          string
	}{
		"as wanted":         {0, 224, ""},
		"all that was sent": {224, 224, "224 tokens are said to have been cached, not 0"},
		"never":             {0, 0, "0 tokens are said to have been cached, not 224"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls++; calls == 1 {
					fmt.Fprint(w, strings.Replace(whole, `"total_tokens":5`, fmt.Sprintf(details, c.first), 1))
					return
				}
				fmt.Fprint(w, strings.Replace(streamed, `"total_tokens":5`, fmt.Sprintf(details, c.second), 1))
			}))
			defer front.Close()
			holdsOr(t, (&router{front: front.URL}).tellsCached(t.Context()), c.want)
		})
	}
}

// TestStepsEndWithTheFirstThatFails checks that the steps stop at the first failed step, and that the
// error names the step.
func TestStepsEndWithTheFirstThatFails(t *testing.T) {
	var done []string
	do := func(name string, err error) step {
		return step{name, func() error { done = append(done, name); return err }}
	}
	holdsOr(t, inOrder(t.Context(), do("a", nil), do("b", os.ErrClosed), do("c", nil)), "b: ")
	if strings.Join(done, "") != "ab" {
		t.Errorf("the steps that ran are %q", done)
	}
}

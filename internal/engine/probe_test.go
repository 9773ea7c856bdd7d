package engine

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// fake answers as the engine of the golden capture does, except on the paths of override.
func fake(t *testing.T, override map[string]string) http.HandlerFunc {
	bodies := map[string]string{
		"/v1/models":             string(golden(t, "models-0.32.0.json")),
		"/version":               `{"version":"0.32.0"}`,
		"/metrics":               string(golden(t, "metrics-0.32.0.txt")),
		"/kv_event_sources":      string(golden(t, "kv_event_sources-0.32.0.json")),
		"/v1/completions/render": `[{"token_ids":[1]}]`,
	}
	maps.Copy(bodies, override)
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		switch {
		case r.URL.Path == "/v1/chat/completions" && !ok:
			reuse(w, r)
		case !ok || body == "404":
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"detail":"Not Found"}`))
		case body == "403":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Write([]byte(body))
		}
	}
}

// reuse is a chat endpoint that takes its prompt from the KV transfer params.
func reuse(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model  string
		Params struct {
			IDs []int `json:"prompt_token_ids"`
		} `json:"kv_transfer_params"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || body.Model != "tiny" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{
		"prompt_token_ids": body.Params.IDs, "system_fingerprint": "vllm-0.32.0-c9323abc",
	})
}

func TestProbe(t *testing.T) {
	full := replica.Facts{
		Model: "tiny", Root: "/models/tiny", Models: []string{"tiny"}, Version: "0.32.0", MaxModelLen: 4096,
		BlockSize: 32, Blocks: 8191, CacheDType: "auto", Connector: "nixl",
		PrefixCaching: true, Ranks: 1, Events: replica.EventSource{
			Endpoint: "tcp://127.0.0.1:5557", Replay: "tcp://127.0.0.1:5657", Topic: "kv@p",
		},
		Render: true, ReuseIDs: true, Started: 1.79524209861e+09, Fingerprint: "vllm-0.32.0-c9323abc",
	}
	for _, tt := range []struct {
		name     string
		override map[string]string
		edit     func(f *replica.Facts)
	}{
		{"everything", nil, func(*replica.Facts) {}},
		{
			"render is forbidden",
			map[string]string{"/v1/completions/render": "403"},
			func(f *replica.Facts) { f.Render = false },
		},
		{
			"events are off",
			map[string]string{"/kv_event_sources": "{}"},
			func(f *replica.Facts) { f.Events = replica.EventSource{} },
		},
		{
			"publisher is null",
			map[string]string{
				"/kv_event_sources": `{"0":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:1"}}`,
			},
			func(f *replica.Facts) { f.Events = replica.EventSource{} },
		},
		{
			"before ids could be reused",
			map[string]string{"/version": `{"version":"0.26.1"}`},
			func(f *replica.Facts) {
				f.Version, f.Fingerprint = "0.26.1", ""
				f.ReuseIDs = false
			},
		},
		{
			"ids are ignored",
			map[string]string{"/v1/chat/completions": `{"prompt_token_ids":[1,2],"system_fingerprint":null}`},
			func(f *replica.Facts) { f.ReuseIDs, f.Fingerprint = false, "" },
		},
		{
			"no chat template",
			map[string]string{"/v1/chat/completions": "404"},
			func(f *replica.Facts) { f.ReuseIDs, f.Fingerprint = false, "" },
		},
		{
			"messages take ids and responses do not",
			map[string]string{
				"/v1/messages": `{"usage":{"input_tokens":1}}`, "/v1/responses": `{"usage":{"input_tokens":5}}`,
			},
			func(f *replica.Facts) { f.ReuseOther.Messages = true },
		},
		{
			"responses take ids, but nobody renders them",
			map[string]string{"/v1/responses": `{"usage":{"input_tokens":1}}`, "/v1/completions/render": "403"},
			func(f *replica.Facts) { f.Render = false },
		},
		{"no metrics", map[string]string{"/metrics": "404"}, func(f *replica.Facts) {
			f.BlockSize = 0
			f.Blocks = 0
			f.CacheDType = ""
			f.Connector = ""
			f.PrefixCaching = false
			f.Started = 0
		}},
		{
			"another connector",
			map[string]string{"/metrics": "vllm:moriio_xfer_time_seconds_count{engine=\"0\"} 0.0\n" +
				"vllm:kv_cache_usage_perc{engine=\"0\"} 0.0\n"},
			func(f *replica.Facts) {
				f.BlockSize = 0
				f.Blocks = 0
				f.CacheDType = ""
				f.Connector = "moriio"
				f.PrefixCaching = false
				f.Started = 0
			},
		},
		{"nothing but models", map[string]string{
			"/metrics": "404", "/version": "404", "/kv_event_sources": "404", "/v1/completions/render": "404",
		}, func(f *replica.Facts) {
			*f = replica.Facts{Model: f.Model, Root: f.Root, Models: f.Models, MaxModelLen: f.MaxModelLen, Ranks: 1}
		}},
		{
			"adapters and an alias",
			map[string]string{"/v1/models": `{"data":[{"id":"tiny","root":"/m","parent":null,"max_model_len":9},` +
				`{"id":"alias","root":"/m"},{"id":"lora","root":"/l","parent":"tiny"}]}`},
			func(f *replica.Facts) {
				f.Root = "/m"
				f.MaxModelLen = 9
				f.Models = []string{"tiny", "alias", "lora"}
				f.AdapterRoots = map[string]string{"lora": "/l"}
				f.Adapters = []string{"lora"}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := full
			tt.edit(&want)
			c, _, _ := serve(t, Options{}, fake(t, tt.override))
			got, err := c.Probe(t.Context())
			if err != nil || len(got) != 1 || !equalFacts(got[0], want) {
				t.Errorf("Probe = %+v %v, want %+v", got, err, want)
			}
		})
	}
}

func equalFacts(a, b replica.Facts) bool {
	aj, _ := json.Marshal(a)
	bj, _ := json.Marshal(b)
	return slices.Equal(aj, bj)
}

// A server runs the global ranks 2 and 3 of a fleet. Rank 3 publishes no events.
func TestProbeRanks(t *testing.T) {
	c, _, _ := serve(t, Options{}, fake(t, map[string]string{
		"/kv_event_sources": `{"2":{"enable_kv_cache_events":true,"publisher":"zmq",` +
			`"endpoint":"tcp://0.0.0.0:5559","replay_endpoint":"tcp://10.0.0.9:5659","topic":""}}`,
		"/metrics": strings.ReplaceAll(dpMetrics, "N", "2") + strings.ReplaceAll(dpMetrics, "N", "3"),
	}))
	got, err := c.Probe(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("Probe = %+v %v, want two ranks", got, err)
	}
	for i, f := range got {
		if f.Ranks != 2 || f.FirstRank != 2 || f.Blocks != 8191 {
			t.Errorf("got rank %d as %+v, want 2 ranks from rank 2 on, with 8191 blocks", f.FirstRank+i, f)
		}
	}
	if want := (replica.EventSource{
		Endpoint: "tcp://127.0.0.1:5559", Replay: "tcp://10.0.0.9:5659",
	}); got[0].Events != want || got[1].Events != (replica.EventSource{}) {
		t.Errorf("got events %+v and %+v, want %+v and none", got[0].Events, got[1].Events, want)
	}
}

const dpMetrics = "vllm:num_requests_running{engine=\"N\"} 0\n" +
	"vllm:cache_config_info{engine=\"N\",block_size=\"32\",num_gpu_blocks=\"16384\"," +
	"kv_cache_size_tokens=\"262144\"} 1\n"

func TestProbeFails(t *testing.T) {
	for name, models := range map[string]string{
		"no endpoint": "404", "no json": "<html>", "no model": `{"data":[]}`,
		"adapters only": `{"data":[{"id":"a","parent":"b"}]}`,
	} {
		c, _, _ := serve(t, Options{}, fake(t, map[string]string{"/v1/models": models}))
		if f, err := c.Probe(t.Context()); err == nil {
			t.Errorf("%s: Probe = %+v, want an error", name, f)
		}
	}
}

func TestScrapeAndHealth(t *testing.T) {
	c, _, _ := serve(t, Options{}, fake(t, map[string]string{"/health": ""}))
	if m, err := c.Scrape(t.Context()); err != nil || m.Ranks[0].Cache.Blocks != 8191 {
		t.Errorf("got %+v, %v from Scrape; want 8191 blocks", m, err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Errorf("got %v from Health, want no error", err)
	}
	dead, _, _ := serve(t, Options{},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	for name, err := range map[string]error{
		"health": dead.Health(t.Context()), "scrape": second(dead.Scrape(t.Context())),
	} {
		if e, ok := errors.AsType[*StatusError](err); !ok || e.Status != 503 {
			t.Errorf("got %v from %s of a dead engine, want status 503", err, name)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestEventSource(t *testing.T) {
	for _, tt := range []struct{ host, endpoint, want string }{
		{"pod-1", "tcp://*:5557", "tcp://pod-1:5557"},
		{"pod-1", "tcp://0.0.0.0:5557", "tcp://pod-1:5557"},
		{"fd00::1", "tcp://[::]:5557", "tcp://[fd00::1]:5557"},
		{"pod-1", "tcp://10.1.2.3:5557", "tcp://10.1.2.3:5557"},
		{"pod-1", "ipc:///tmp/kv", "ipc:///tmp/kv"},
		{"pod-1", "", ""},
	} {
		got := EventSource(tt.host, tt.endpoint, tt.endpoint, "t")
		if want := (replica.EventSource{Endpoint: tt.want, Replay: tt.want, Topic: "t"}); got != want {
			t.Errorf("EventSource(%q, %q) = %+v, want %+v", tt.host, tt.endpoint, got, want)
		}
	}
}

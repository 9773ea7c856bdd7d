package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/tandem-router/tandem/internal/engine"
)

func ExampleClient_Do() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(engine.ORCAResponse,
			"TEXT named_metrics.num_requests_waiting=2.0, named_metrics.kv_cache_usage_perc=0.25")
		io.WriteString(w, `{"choices":[]}`)
	}))
	defer server.Close()
	client, err := engine.New(engine.Options{URL: server.URL})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	resp, err := client.Do(context.Background(), &engine.Request{
		Method: http.MethodPost, Path: "/v1/completions",
		Header: []engine.Field{{Key: engine.ORCARequest, Value: "TEXT"}},
		Body:   []byte(`{"model":"tiny","prompt":[1,2,3],"max_tokens":1}`),
	})
	if err != nil {
		fmt.Println("the params may be used again:", engine.NotSent(err))
		return
	}
	defer resp.Close()
	load, _ := engine.ParseORCA(resp.Header.Get(engine.ORCAResponse))
	fmt.Println(resp.Status, load.Waiting, "waiting, usage", load.Usage)
	for {
		b, err := resp.Next()
		if err != nil { // io.EOF marks the end
			break
		}
		fmt.Println(string(b))
	}
	// Output:
	// 200 2 waiting, usage 0.25
	// {"choices":[]}
}

package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// The front between a raw client and engines with fixed answers, over loopback sockets in one process.
// Neither end allocates memory, so all counted allocations are the router's. Its time is better measured
// from outside (tools/bench).

// BenchmarkAnswer measures a short split request without a stream.
func BenchmarkAnswer(b *testing.B) {
	c := startFront(b, nil)
	request := benchRequest(false)
	c.answer(b, request)
	b.ReportAllocs()
	for b.Loop() {
		c.answer(b, request)
	}
}

// BenchmarkAnswerOfAnAlias measures the same request by the name of an alias.
func BenchmarkAnswerOfAnAlias(b *testing.B) {
	alias := config.Alias{Name: "n", To: []config.Target{{Model: "m", Weight: 1}}}
	c := startFront(b, nil, withAliases(alias))
	request := bytes.Replace(benchRequest(false), []byte(`"m"`), []byte(`"n"`), 1)
	c.answer(b, request)
	b.ReportAllocs()
	for b.Loop() {
		c.answer(b, request)
	}
}

// BenchmarkAnswerOfAKey measures the same request without keys, with 10,000 keys, with limits for each key,
// and with classes and shares, too. It counts processor time. The four routers take turns of 50 requests, so
// a noisy machine disturbs all alike. It reports the mean of each router, and two ratios to the router
// without keys: the ratio of the means, and the median of the ratios of the rounds.
func BenchmarkAnswerOfAKey(b *testing.B) {
	keyed := func(limit int, classes ...config.Class) func(c *config.Config) {
		return func(c *config.Config) {
			c.Classes = classes
			for i := range 10_000 {
				k := config.Key{
					Name: fmt.Sprint("team-", i), Secret: config.Secret{Value: fmt.Sprint("secret-", i)},
					Requests: limit, Tokens: limit, AtOnce: limit, KV: limit,
				}
				if len(classes) > 0 {
					k.Class, k.Classes = classes[0].Name, []string{classes[1].Name}
				}
				c.Keys = append(c.Keys, k)
			}
		}
	}
	const most = 1_000_000_000
	names := []string{"off", "keys", "limits", "classes"}
	fronts := make([]*benchClient, len(names))
	for i, change := range []func(*config.Config){
		func(*config.Config) {}, keyed(0), keyed(most), keyed(
			most, config.Class{Name: "fast", TTFT: config.Goal(time.Minute), TPOT: config.Goal(time.Second)},
			config.Class{Name: "slow", TTFT: config.Goal(time.Hour)},
		),
	} {
		fronts[i] = startFront(b, nil, change)
	}
	request := bytes.Replace(benchRequest(false), []byte("Host: front"),
		[]byte("Host: front\r\nAuthorization: Bearer secret-77"), 1)
	sums := make([]float64, len(names))
	ratios := make([][]float64, len(names)) // by round
	const turn = 50
	round := func(of int) {
		took := make([]float64, len(names))
		for i := range names {
			at := (i + of) % len(names)
			before := processorTime()
			for range turn {
				fronts[at].answer(b, request)
			}
			took[at] = float64(processorTime() - before)
		}
		for i := range names {
			sums[i] += took[i]
			ratios[i] = append(ratios[i], took[i]/took[0])
		}
	}
	for range 10 {
		round(0)
	}
	clear(sums)
	clear(ratios)
	for n := 0; b.Loop(); n++ {
		round(n)
	}
	for i, name := range names {
		slices.Sort(ratios[i])
		b.ReportMetric(sums[i]/float64(turn*b.N), name+"-ns/answer")
		if i > 0 {
			b.ReportMetric(sums[i]/sums[0], name+"/off")
			b.ReportMetric(ratios[i][len(ratios[i])/2], name+"/off-median")
		}
	}
}

// processorTime is what this process has used so far, in nanoseconds.
func processorTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkStreamed measures a split stream of 64 events, sent as fast as possible.
func BenchmarkStreamed(b *testing.B) {
	c := startFront(b, nil)
	request := benchRequest(true)
	c.answer(b, request)
	b.ReportAllocs()
	for b.Loop() {
		c.answer(b, request)
	}
}

// BenchmarkEvent measures one event of a long stream. Each event is sent when the one before has arrived,
// as from engines that take milliseconds for a token.
func BenchmarkEvent(b *testing.B) {
	next := make(chan bool)
	c := startFront(b, next)
	if _, err := c.nc.Write(benchRequest(true)); err != nil {
		b.Fatal(err)
	}
	send := func(more bool, want string) {
		next <- more
		c.until(b, want)
	}
	send(true, "\n\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		send(true, "\n\n\r\n")
	}
	send(false, "0\r\n\r\n")
}

// benchClient is a raw connection to the front.
type benchClient struct {
	nc  net.Conn
	buf [64 << 10]byte
}

func (c *benchClient) answer(b *testing.B, request []byte) {
	if _, err := c.nc.Write(request); err != nil {
		b.Fatal(err)
	}
	if bytes.Contains(request, []byte(`"stream":true`)) {
		c.until(b, "\r\n0\r\n\r\n")
		return
	}
	c.until(b, "}")
}

// until reads up to the end of an answer or event.
func (c *benchClient) until(b *testing.B, end string) {
	for n := 0; ; {
		m, err := c.nc.Read(c.buf[n:])
		if err != nil {
			b.Fatalf("%v behind %q", err, c.buf[:n])
		}
		if n += m; bytes.HasSuffix(c.buf[:n], []byte(end)) {
			return
		}
	}
}

func benchRequest(stream bool) []byte {
	var ids strings.Builder
	ids.WriteString("1")
	for i := range 299 {
		ids.WriteString("," + strconv.Itoa(10+i*7%1000))
	}
	body := fmt.Sprintf(
		`{"model":"m","prompt":[%s],"temperature":0,"ignore_eos":true,"stream":%v,"max_tokens":64}`, ids.String(),
		stream,
	)
	return fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: front\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body)
}

// startFront starts a router with one prefill and one decode engine. next triggers each event of a stream;
// if it is nil, all are sent at once.
func startFront(b *testing.B, next chan bool, change ...func(*config.Config)) *benchClient {
	cfg := config.Default()
	cfg.Local = config.LocalNever
	cfg.Pools.Prefill.Replicas = []config.Replica{{URL: "http://" + startFixed(b, nil)}}
	cfg.Pools.Decode.Replicas = []config.Replica{{URL: "http://" + startFixed(b, next)}}
	for _, f := range change {
		f(cfg)
	}
	if err := cfg.Validate(); err != nil {
		b.Fatal(err)
	}
	o, err := New(cfg, Options{NoEvents: true, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Serve(ctx, Listeners{Front: ln}, http.NotFoundHandler()) }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		nc.Close()
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	for o.fleet.Any("m", nil) == nil || !allUp(o) {
		time.Sleep(time.Millisecond)
	}
	return &benchClient{nc: nc}
}

func allUp(o *Orchestrator) bool {
	for _, w := range o.fleet.Watchers() {
		if !w.Up() {
			return false
		}
	}
	return true
}

// startFixed runs an engine with fixed answers, and returns its address.
func startFixed(b *testing.B, next chan bool) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go serveFixed(nc, next)
		}
	}()
	return ln.Addr().String()
}

// serveFixed answers all requests of one connection.
func serveFixed(nc net.Conn, next chan bool) {
	defer nc.Close()
	in := bufio.NewReaderSize(nc, 64<<10)
	for {
		path, body, err := readFixed(in)
		if err != nil {
			return
		}
		if bytes.Contains(body, []byte(`"stream":true`)) && next != nil {
			_, _ = nc.Write(fixedStream[0])
			for <-next {
				_, _ = nc.Write(fixedEvent)
			}
			_, _ = nc.Write(fixedEnd)
			continue
		}
		if bytes.Contains(body, []byte(`"stream":true`)) {
			for _, part := range fixedStream {
				_, _ = nc.Write(part)
			}
			continue
		}
		_, _ = nc.Write(fixedAnswer(path))
	}
}

// readFixed reads one request. Its results are valid until the next call.
func readFixed(in *bufio.Reader) (path, body []byte, err error) {
	length := 0
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, nil, err
	}
	_, rest, _ := bytes.Cut(line, []byte{' '})
	path, _, _ = bytes.Cut(rest, []byte{' '})
	if !bytes.Equal(path, completions) {
		path = bytes.Clone(path)
	} else {
		path = completions
	}
	for len(line) > 2 {
		if line, err = in.ReadSlice('\n'); err != nil {
			return nil, nil, err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			for _, c := range value[:len(value)-2] {
				length = length*10 + int(c-'0')
			}
		}
	}
	if body, err = in.Peek(length); err == nil {
		_, err = in.Discard(length)
	}
	return path, body, err
}

var (
	completions = []byte("/v1/completions")
	fixedLeg    = fixedJSON(`{"id":"cmpl-1","object":"text_completion","created":1795242161,"model":"m",` +
		`"choices":[{"index":0,"text":" token",` +
		`"logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":300,` +
		`"total_tokens":302,"completion_tokens":2,` +
		`"prompt_tokens_details":null},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,` +
		`"remote_block_ids":[[1,2,3,4,5,6,7,8,` +
		`9,10,11,12,13,14,15,16,17,18,19]],"remote_engine_id":"6df2bc3d-18dc-41d5-9b1e-baf285660f54",` +
		`"remote_request_id":"cmpl-1-0-ae346bc9",` +
		`"remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,"dcp_size":1,"pp_size":1,` +
		`"remote_num_tokens":300,"remote_blocks_expiry_time":null,` +
		`"transfer_mode":"pull","remote_prefill_cached_tokens":288}}`)
	fixedEvent = fixedChunk(`"token_ids":[4242],"prompt_logprobs":null,"prompt_token_ids":null`)
	fixedFirst = fixedChunk(
		`"token_ids":[4242],"prompt_logprobs":null,"prompt_token_ids":[1` + strings.Repeat(",17", 299) + `]`,
	)
	fixedEnd    = []byte("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
	fixedStream = [][]byte{
		append([]byte(
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n",
		), fixedFirst...),
		bytes.Repeat(fixedEvent, 31), append(bytes.Repeat(fixedEvent, 32), fixedEnd...),
	}
)

func fixedChunk(ids string) []byte {
	event := `data: {"id":"cmpl-1","object":"text_completion","created":1795242161,"model":"m",` +
		`"choices":[{"index":0,"text":" token","logprobs":null,` +
		`"finish_reason":null,"stop_reason":null,` + ids + "}]}\n\n"
	return fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event)
}

func fixedJSON(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nendpoint-load-metrics: TEXT "+
		"named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0\r\nContent-Length: %d\r\n"+
		"\r\n%s", len(body), body)
}

// fixedAnswer returns the engine's answer to a request that is not streamed.
func fixedAnswer(path []byte) []byte {
	switch string(path) {
	case "/v1/completions":
		return fixedLeg
	case "/version":
		return fixedJSON(`{"version":"0.32.0"}`)
	case "/v1/models":
		return fixedJSON(`{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"vllm",` +
			`"root":"m","parent":null,"max_model_len":131072}]}`)
	case "/metrics":
		return fixedJSON(fixedMetrics)
	}
	return fixedJSON(`{}`)
}

const fixedMetrics = `process_start_time_seconds 1795242098.61
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="1600000",num_gpu_blocks="100000"} 1.0
`

package orchestrator

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/config/certtest"
)

// sealedEngine is an engine with TLS that asks for a client certificate. Each of its streams begins, and goes
// on when the test says so.
type sealedEngine struct {
	addr    string
	shows   atomic.Pointer[tls.Certificate]
	client  atomic.Int64 // serial number of the newest request's certificate
	streams atomic.Int64 // that have begun
	goOn    chan struct{}
}

func newSealedEngine(t *testing.T, own certtest.Pair, clients ...certtest.Pair) *sealedEngine {
	e := &sealedEngine{goOn: make(chan struct{})}
	e.shows.Store(new(loaded(t, own)))
	known := x509.NewCertPool()
	for _, c := range clients {
		known.AppendCertsFromPEM(c.Cert)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return e.shows.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.addr = ln.Addr().String()
	server := &http.Server{Handler: e, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Close() })
	return e
}

func (e *sealedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		_, _ = io.WriteString(w, `{"data":[{"id":"sim","root":"sim","max_model_len":4096}]}`)
	case "/metrics":
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 0\n")
	case "/v1/chat/completions":
		e.client.Store(r.TLS.PeerCertificates[0].SerialNumber.Int64())
		id := r.Header.Get("X-Request-Id")
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Request-Id", id)
		for i := range 5 {
			finish := "null"
			if i == 4 {
				finish = `"stop"`
			}
			fmt.Fprintf(w, `data: {"id":"chatcmpl-%s","object":"chat.completion.chunk","created":1,"model":"sim",`+
				`"choices":[{"index":0,"delta":{"content":"part%d "},"finish_reason":%s}]}`+"\n\n", id, i, finish)
			_ = http.NewResponseController(w).Flush()
			if i == 0 {
				e.streams.Add(1)
				<-e.goOn
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// sealedRouter is a router whose certificates stand in files.
type sealedRouter struct {
	o         *Orchestrator
	addr      string
	front     *secret // certificate of the front
	toEngines *secret // client certificate
	authority string  // file of the engines' authorities
}

// newSealedRouter serves over real sockets, and follows its file.
func newSealedRouter(t *testing.T, e *sealedEngine, front, client, engine certtest.Pair) *sealedRouter {
	s := &sealedRouter{
		front: &secret{dir: t.TempDir()}, toEngines: &secret{dir: t.TempDir()},
		authority: filepath.Join(t.TempDir(), "ca.pem"),
	}
	s.front.put(t, front.Cert, front.Key)
	s.toEngines.put(t, client.Cert, client.Key)
	write(t, s.authority, engine.Cert)
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, file, fmt.Appendf(nil, "listen: 127.0.0.1:0\nadmin: {listen: \"off\"}\n"+
		"tls: {cert: %s/tls.crt, key: %[1]s/tls.key}\ntokenizer: {source: none}\n"+
		"timeouts: {connect: 1m, probe: 1m}\nhealth: {ejection: {failures: 0, share: 0}}\n"+ // on slow machines
		"pools: {decode: {poll_interval: 50ms, replicas: [\"https://%s\"], "+
		"tls: {ca: %s, cert: %[4]s/tls.crt, key: %[4]s/tls.key}}}\n",
		s.front.dir, e.addr, s.authority, s.toEngines.dir))
	watch := config.NewWatcher(file, func(_ bool, c *config.Config, err error) {
		if err != nil {
			s.o.Rejected(err)
			return
		}
		_ = s.o.Apply(c)
	})
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.o, err = New(cfg, Options{NoEvents: true}); err != nil {
		t.Fatal(err)
	}
	l, err := s.o.Listen()
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Front.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- s.o.Serve(ctx, l, s.o.Admin()) }()
	go func() { ended <- watch.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		_, _ = <-ended, <-ended
	})
	return s
}

// shown is the serial number of the certificate that a new client sees.
func (s *sealedRouter) shown(t *testing.T) int64 {
	conn, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// stream reads a stream to its end, and returns its parts.
func (s *sealedRouter) stream(by *http.Client) string {
	const body = `{"model":"sim","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	resp, err := by.Post("https://"+s.addr+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var got strings.Builder
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		text := lines.Text()
		if _, part, ok := strings.Cut(text, `"content":"`); ok {
			part, _, _ = strings.Cut(part, `"`)
			got.WriteString(part)
		} else if text != "" {
			got.WriteString(text)
		}
	}
	if err := lines.Err(); err != nil {
		got.WriteString(err.Error())
	}
	return got.String()
}

// All certificates are replaced twice under 100 streams, over HTTP/1.1 and HTTP/2: the certificate of the
// front, the router's certificate towards engines, and the certificate of an engine with the file of its
// authority. New connections on both sides use the new certificates, and no stream is cut or loses a part.
func TestCertificatesRotateUnderStreams(t *testing.T) {
	const streams = 100
	var fronts, clients, engines [3]certtest.Pair
	for i := range 3 {
		fronts[i] = certtest.New(t, int64(10+i))
		clients[i] = certtest.New(t, int64(20+i))
		engines[i] = certtest.New(t, int64(30+i))
	}
	e := newSealedEngine(t, engines[0], clients[:]...)
	s := newSealedRouter(t, e, fronts[0], clients[0], engines[0])
	until(t, "the engine is usable", s.o.Ready)

	dial := func(version string) *http.Client {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(version == "1")
		protocols.SetHTTP2(version == "2")
		through := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: protocols,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		}
		t.Cleanup(through.CloseIdleConnections)
		return &http.Client{Transport: through}
	}
	old := []*http.Client{dial("1"), dial("2")}
	answers := make(chan string, streams+2)
	for i := range streams {
		go func() { answers <- s.stream(old[i%2]) }()
		if begun := int64(i + 1); begun%10 == 0 {
			until(t, "the streams begin", func() bool { return e.streams.Load() == begun })
		}
	}
	for turn := 1; turn <= 2; turn++ {
		e.shows.Store(new(loaded(t, engines[turn])))
		write(t, s.authority, engines[turn].Cert)
		s.toEngines.put(t, clients[turn].Cert, clients[turn].Key)
		s.front.put(t, fronts[turn].Cert, fronts[turn].Key)
		until(t, "the front shows its new certificate", func() bool { return s.shown(t) == int64(10+turn) })
		until(t, "the engine is usable by its new certificate", s.o.Ready)
		fresh := dial("1")
		go func() { answers <- s.stream(fresh) }()
		until(t, "a new stream begins", func() bool { return e.streams.Load() == int64(streams+turn) })
		if got := e.client.Load(); got != int64(20+turn) {
			t.Errorf("the engine sees certificate %d of the router, want %d", got, 20+turn)
		}
	}
	close(e.goOn)
	for range streams + 2 {
		if got := <-answers; got != "part0 part1 part2 part3 part4 data: [DONE]" {
			t.Errorf("a stream is %q", got)
		}
	}
}

package orchestrator

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/config/certtest"
)

func loaded(t *testing.T, p certtest.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// secret is a folder like a mounted Kubernetes secret: its files are links into another folder, which is
// replaced as a whole.
type secret struct {
	dir string
	n   int
}

func (s *secret) put(t *testing.T, cert, key []byte) {
	t.Helper()
	s.n++
	data := fmt.Sprintf("..data%d", s.n)
	if err := os.Mkdir(filepath.Join(s.dir, data), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.dir, data, "tls.crt"), cert)
	write(t, filepath.Join(s.dir, data, "tls.key"), key)
	next := filepath.Join(s.dir, "..next")
	if err := os.Symlink(data, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(s.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(s.dir, name)); s.n == 1 && err != nil {
			t.Fatal(err)
		}
	}
}

// The files of the front's certificate are replaced, as cert-manager does, and the new certificate is used
// without a restart. A broken certificate is not used: the former one stays in use, and the reload counts
// as rejected.
func TestFrontCertificateIsReplaced(t *testing.T) {
	one := certtest.New(t, 1)
	two := certtest.New(t, 2)
	three := certtest.New(t, 3)
	mounted := &secret{dir: t.TempDir()}
	mounted.put(t, one.Cert, one.Key)
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, file, fmt.Appendf(nil,
		"listen: 127.0.0.1:0\nadmin: {listen: \"off\"}\ntls: {cert: %s/tls.crt, key: %[1]s/tls.key}\n",
		mounted.dir))
	var o *Orchestrator
	watch := config.NewWatcher(file, func(_ bool, c *config.Config, err error) {
		if err != nil {
			o.Rejected(err)
			return
		}
		_ = o.Apply(c)
	})
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = New(cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	l, err := o.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- o.Serve(t.Context(), l, o.Admin()) }()
	go func() { ended <- watch.Run(t.Context()) }()
	t.Cleanup(func() { _, _ = <-ended, <-ended })

	serial := func() int64 {
		conn, err := tls.Dial("tcp", l.Front.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return 0
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	w := &world{t: t, o: o}
	if got := serial(); got != 1 {
		t.Fatalf("certificate %d, want 1", got)
	}
	mounted.put(t, two.Cert, two.Key)
	until(t, "the second certificate", func() bool { return serial() == 2 })
	mounted.put(t, three.Cert, two.Key) // a key that does not fit
	until(t, "the broken pair is told",
		func() bool { return w.count("tandem_config_reloads_total", "rejected") == 1 })
	if got := serial(); got != 2 {
		t.Errorf("certificate %d after a broken one, want 2", got)
	}
	mounted.put(t, three.Cert, three.Key)
	until(t, "the third certificate", func() bool { return serial() == 3 })
}

// The engines' certificates change, and so does the file of their authority. After a reload the new
// authority is trusted, and the former one is not.
func TestRotatedAuthorityIsUsed(t *testing.T) {
	one, two := certtest.New(t, 1), certtest.New(t, 2)
	var now atomic.Pointer[tls.Certificate]
	show := func(p certtest.Pair) { now.Store(new(loaded(t, p))) }
	show(one)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return now.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ErrorLog: log.New(io.Discard, "",
		0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"sim","root":"sim","max_model_len":4096}]}`)
		case "/metrics":
			_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 0\n")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	write(t, authority, one.Cert)
	cfg := config.Default()
	cfg.Pools.Decode.PollInterval = 50 * time.Millisecond
	cfg.Pools.Decode.TLS.CA = authority
	cfg.Pools.Decode.Replicas = []config.Replica{{URL: "https://" + ln.Addr().String()}}
	o, err := New(cfg, Options{NoEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- o.Run(t.Context()) }()
	t.Cleanup(func() { <-ended })
	engine := o.fleet.Watchers()[0]
	until(t, "the replica by the first authority", engine.Up)
	show(two)
	until(t, "nobody trusts the second yet", func() bool { return !engine.Up() })
	write(t, authority, two.Cert)
	if err := o.Apply(new(*cfg)); err != nil {
		t.Fatal(err)
	}
	until(t, "the replica by the second authority", engine.Up)
	if o.fleet.Watchers()[0] != engine {
		t.Error("the reload replaced the watcher")
	}
	show(one)
	until(t, "nobody trusts the first any more", func() bool { return !engine.Up() })
}

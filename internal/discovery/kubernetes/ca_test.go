package kubernetes

import (
	"crypto/tls"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tandem-router/tandem/internal/config/certtest"
	"github.com/tandem-router/tandem/internal/lab/kubernetestest"
)

// authority is a certificate that signs itself, and its PEM.
func authority(t *testing.T, serial int64) (*tls.Certificate, string) {
	t.Helper()
	pair := certtest.New(t, serial)
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &c, string(pair.Cert)
}

// A new CA file counts for the next connection, before and after the API server has a certificate of the new
// CA. While the file is broken, the last good one counts. At the start a broken file is reported.
func TestANewCACountsAtOnce(t *testing.T) {
	t.Parallel()
	first, firstCA := authority(t, 1)
	second, secondCA := authority(t, 2)
	var has atomic.Pointer[tls.Certificate]
	has.Store(first)
	a := kubernetestest.Start(t)
	secure := httptest.NewUnstartedServer(a)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*has.Load()}, MinVersion: tls.VersionTLS12}, nil
	}}
	secure.StartTLS()
	t.Cleanup(func() {
		a.EndWatches()
		secure.Close()
	})
	a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))

	r := run(t, a)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("broken")
	cfg := *r.cfg
	cfg.Discovery.Kubernetes.Server, cfg.Discovery.Kubernetes.CA = secure.URL, file
	r.cfg = &cfg
	r.Configure(r.cfg)
	r.until("prefill waiting:\ndecode waiting:\n", file+" has no certificate in PEM")
	write(firstCA)
	r.until(one, "")

	rotate := func(to *tls.Certificate) {
		has.Store(to)
		secure.CloseClientConnections()
		a.EndWatches()
	}
	held := strings.ReplaceAll(one, "fresh", "held")
	rotate(second)
	r.until(held, "unknown authority")
	write(secondCA)
	r.until(one, "")
	write(secondCA + firstCA)
	rotate(first)
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.3", 8000))
	r.until(strings.Replace(one, "10.0.0.2", "10.0.0.3", 1), "")
	write("broken")
	rotate(first)
	a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
	r.until(one, "")
}

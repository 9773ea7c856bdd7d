package kubernetes

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// trusting sends requests to an API server whose certificate is signed by the CA of a file. It reads the file
// before each request: there are few requests, and client-go would use a new CA only after minutes. Safe for
// concurrent use.
type trusting struct {
	file string

	mu sync.Mutex // guards the following
	ca []byte     // text of the file
	to *http.Transport
}

// RoundTrip implements [http.RoundTripper]. The last good CA counts while the file has none.
func (t *trusting) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	_ = t.loadLocked()
	to := t.to
	t.mu.Unlock()
	return to.RoundTrip(r)
}

// loadLocked makes a new transport if the file has changed. The error says why the file has no CA.
func (t *trusting) loadLocked() error {
	ca, err := os.ReadFile(t.file)
	if err != nil || bytes.Equal(ca, t.ca) {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s has no certificate in PEM: write the CA of the API server into it", t.file)
	}
	if t.to != nil {
		t.to.CloseIdleConnections()
	}
	t.ca, t.to = ca, utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
	return nil
}

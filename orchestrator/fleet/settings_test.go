package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tandem/internal/config"
)

// pair is a certificate that signs itself, for the loopback, as it stands in files.
type pair struct {
	serial    int64
	cert, key []byte
}

func newPair(t *testing.T, serial int64) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		serial, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSameTLS(t *testing.T) {
	a, b := newPair(t, 1), newPair(t, 2)
	files := func(cert, key, ca []byte) config.ClientTLS {
		dir := t.TempDir()
		c := config.ClientTLS{
			CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"),
		}
		write(t, c.CA, ca)
		write(t, c.Cert, cert)
		write(t, c.Key, key)
		return c
	}
	read := func(c config.ClientTLS) *tls.Config {
		out, err := config.Default().EngineTLS(config.Pool{TLS: c})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := files(a.cert, a.key, a.cert)
	named, unverified := first, first
	named.ServerName, unverified.InsecureSkipVerify = "engine", true
	for name, tt := range map[string]struct {
		other config.ClientTLS
		same  bool
	}{
		"the same files":      {first, true},
		"the same in others":  {files(a.cert, a.key, a.cert), true},
		"another authority":   {files(a.cert, a.key, b.cert), false},
		"another certificate": {files(b.cert, b.key, a.cert), false},
		"another name":        {named, false},
		"not verified":        {unverified, false},
		"nothing":             {config.ClientTLS{}, false},
	} {
		if got := config.SameTLS(read(first), read(tt.other)); got != tt.same {
			t.Errorf("%s: the same %t, want %t", name, got, tt.same)
		}
	}
}

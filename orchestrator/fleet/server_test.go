package fleet

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/config/certtest"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSameTLS(t *testing.T) {
	a, b := certtest.New(t, 1), certtest.New(t, 2)
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
	first := files(a.Cert, a.Key, a.Cert)
	named, unverified := first, first
	named.ServerName, unverified.InsecureSkipVerify = "engine", true
	for name, tt := range map[string]struct {
		other config.ClientTLS
		same  bool
	}{
		"the same files":      {first, true},
		"the same in others":  {files(a.Cert, a.Key, a.Cert), true},
		"another authority":   {files(a.Cert, a.Key, b.Cert), false},
		"another certificate": {files(b.Cert, b.Key, a.Cert), false},
		"another name":        {named, false},
		"not verified":        {unverified, false},
		"nothing":             {config.ClientTLS{}, false},
	} {
		if got := config.SameTLS(read(first), read(tt.other)); got != tt.same {
			t.Errorf("%s: the same %t, want %t", name, got, tt.same)
		}
	}
}

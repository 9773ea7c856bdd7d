package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config/certtest"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	writeCert(t, dir)
	write(t, filepath.Join(dir, "engine-key"), "from-file\n")
	t.Setenv("TANDEM_TEST_KEY", "from-env")
	path := filepath.Join(dir, "tandem.yaml")
	write(t, path, `
tls: {cert: cert.pem, key: key.pem}
api_keys: [{env: TANDEM_TEST_KEY}, {value: inline}]
pools:
  decode:
    api_key: {file: engine-key}
    tls: {ca: cert.pem, cert: cert.pem, key: key.pem}
`)
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{
		c.APIKeys[0].Reveal(), c.APIKeys[1].Reveal(), c.Pools.Decode.APIKey.Reveal(),
	}; strings.Join(got, " ") != "from-env inline from-file" {
		t.Errorf("got secrets %q, want from-env, inline, from-file", got)
	}
	if front, err := c.FrontCertificate(); err != nil || len(front.Certificate) != 1 {
		t.Errorf("got front certificate %v, %v; want one certificate", front, err)
	}
	if engine, err := c.EngineTLS(c.Pools.Decode); err != nil || engine.RootCAs == nil ||
		len(engine.Certificates) != 1 {
		t.Errorf("got TLS %v of the pool, %v; want a CA and one certificate", engine, err)
	}
}

// The files and variables of the shared answer cache are read with the configuration. A secret that is too
// short is refused, from any source.
func TestLoadOfTheSharedAnswerCache(t *testing.T) {
	dir := t.TempDir()
	writeCert(t, dir)
	write(t, filepath.Join(dir, "secret"), strings.Repeat("s", leastSecret)+"\n")
	write(t, filepath.Join(dir, "short"), "short\n")
	t.Setenv("TANDEM_TEST_PASSWORD", "from-env")
	path := filepath.Join(dir, "tandem.yaml")
	load := func(secret string) (*Config, error) {
		write(t, path, `answer_cache: {memory_bytes: 8MiB, valkey: {addresses: ["v:6379"], secure: true,
  tls: {ca: cert.pem}, password: {env: TANDEM_TEST_PASSWORD}, secret: {file: secret},
  former_secret: {file: `+secret+`}}}`)
		return Load(path)
	}
	c, err := load("secret")
	if err != nil {
		t.Fatal(err)
	}
	v := &c.AnswerCache.Valkey
	if v.Password.Reveal() != "from-env" || len(v.Secret.Reveal()) != leastSecret {
		t.Errorf("got password %q, secret %q; want from-env, %d bytes",
			v.Password.Reveal(), v.Secret.Reveal(), leastSecret)
	}
	if trust, err := v.ServerTLS(); err != nil || trust.RootCAs == nil {
		t.Errorf("got TLS %v, %v; want a CA", trust, err)
	}
	if _, err := load("short"); err == nil || !strings.Contains(err.Error(), "former_secret: has 5 bytes") {
		t.Errorf("short secret in a file: got %v, want an error with its length", err)
	}
}

func TestLoadTellsAllThatIsMissing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "empty"), "\n")
	write(t, filepath.Join(dir, "lines"), "a\nb\n")
	path := filepath.Join(dir, "tandem.yaml")
	write(t, path, `tls: {cert: no.pem, key: no.pem}
api_keys:
- {env: TANDEM_NOT_SET}
- {file: none}
- {file: empty}
- {file: lines}
pools:
  prefill:
    tls: {ca: lines}
`)
	_, err := Load(path)
	ps, ok := errors.AsType[Problems](err)
	if !ok {
		t.Fatalf("got %v, want Problems", err)
	}
	want := []string{
		"tls", "api_keys[0].env", "api_keys[1].file", "api_keys[2].file", "api_keys[3]", "pools.prefill.tls",
	}
	lines := []int{1, 3, 4, 5, 6, 9}
	if len(ps) != len(want) {
		t.Fatalf("got %d problems, want %d:\n%v", len(ps), len(want), err)
	}
	for i, p := range ps {
		if p.Field != want[i] || p.Line != lines[i] || p.File != path {
			t.Errorf("got problem %d %v, want field %s in line %d", i, p, want[i], lines[i])
		}
	}
}

func TestLoadOfNothing(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeCert writes a certificate cert.pem and its key key.pem.
func writeCert(t *testing.T, dir string) {
	t.Helper()
	p := certtest.New(t, 1)
	write(t, filepath.Join(dir, "cert.pem"), string(p.Cert))
	write(t, filepath.Join(dir, "key.pem"), string(p.Key))
}

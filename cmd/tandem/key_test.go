package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// A new key's line goes to stdout and into the key file; its secret goes to stderr, once, and has the hash of
// the line.
func TestNewKey(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	for _, args := range [][]string{{"key", "new", "team-a"}, {"key", "new", "--tenant", "b", "team-b"}} {
		if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
			t.Fatalf("%d: %s", code, &stderr)
		}
	}
	secrets := regexp.MustCompile(`sk-tandem-[A-Za-z0-9_-]{43}`).FindAllString(stderr.String(), -1)
	if len(secrets) != 2 || secrets[0] == secrets[1] || strings.Contains(stdout.String(), "sk-") {
		t.Fatalf("stderr %s, stdout %s", &stderr, &stdout)
	}
	path := filepath.Join(dir, "tandem.yaml")
	for name, text := range map[string]string{"keys": stdout.String(), "tandem.yaml": "keys_file: keys\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range c.ClientKeys() {
		if k.Hash() != sha256.Sum256([]byte(secrets[i])) || k.Name+k.Tenant != []string{"team-a", "team-bb"}[i] {
			t.Errorf("%+v is not of secret %d", k, i)
		}
	}
}

func TestNewKeyRefusesBadNames(t *testing.T) {
	for _, args := range [][]string{{"a b"}, {""}, {"--tenant", "b/c", "a"}, {}, {"a", "b"}} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"key", "new"}, args...), &stdout, &stderr)
		if code != exitUsage || stdout.Len() > 0 || strings.Contains(stderr.String(), "sk-") {
			t.Errorf("%q: %d %s%s", args, code, &stdout, &stderr)
		}
	}
	var out bytes.Buffer
	code := run(t.Context(), []string{"key"}, &out, &out)
	if code != exitUsage || !strings.Contains(out.String(), "key new") {
		t.Errorf("%d %s", code, fmt.Sprint(&out))
	}
}

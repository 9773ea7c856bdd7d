package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe instead of a file is refused at once, and the error names the field. Loading does not wait for a
// writer or reader of the pipe. A regular file that replaces the pipe is loaded.
func TestNothingWaitsForAPipe(t *testing.T) {
	folder := t.TempDir()
	path, pipe := filepath.Join(folder, "tandem.yaml"), filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const replicas = "pools: {decode: {replicas: [\"http://d:8000\"]}}\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(replicas)
	w := watch(t, path, never)
	for text, field := range map[string]string{
		"api_keys: [{file: pipe}]\n":                                                 "api_keys[0].file",
		"admin: {token: {file: pipe}}\n":                                             "admin.token.file",
		"tls: {cert: pipe, key: pipe}\n":                                             "tls",
		"routers: {valkey: {addresses: [\"v:1\"], secure: true, tls: {ca: pipe}}}\n": "routers.valkey.tls",
	} {
		write(replicas + text)
		type loaded struct{ err error }
		done := make(chan loaded, 1)
		go func() {
			_, err := Load(path)
			done <- loaded{err}
		}()
		select {
		case l := <-done:
			if l.err == nil || !strings.Contains(l.err.Error(), field) ||
				!strings.Contains(l.err.Error(), "is a pipe") {
				t.Errorf("%s: got %v, want an error that the file is a pipe", field, l.err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: Load is still waiting after 10s", field)
		}
		if _, err := w.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "is a pipe") {
			t.Errorf("%s: got %v from Reload, want an error that the file is a pipe", field, err)
		}
	}
	write("listen: :9\n" + replicas)
	if changed, err := w.Reload(t.Context()); err != nil || !changed {
		t.Errorf("regular file: got changed %v, %v; want true", changed, err)
	}
	if _, err := Load(pipe); err == nil || !strings.Contains(err.Error(), "is a pipe") {
		t.Errorf("got %v for a pipe as the configuration, want an error", err)
	}
}

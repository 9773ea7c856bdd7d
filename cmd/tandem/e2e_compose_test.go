//go:build linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// The services of compose.yaml form a fleet that answers. Each service listens on a loopback address
// instead of a container's address.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct{ Command []string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Services) != 5 {
		t.Fatalf("%d services: %v", len(file.Services), err)
	}
	address := map[string]string{} // by service
	for name := range file.Services {
		address[name] = fmt.Sprintf("127.%d.%d.%d", 16+os.Getpid()>>8&0x7f, os.Getpid()&0xff, 2+len(address))
	}
	for name, s := range file.Services {
		for i, arg := range s.Command {
			if strings.HasPrefix(arg, ":") { // as :8000
				arg = address[name] + arg
			}
			arg = strings.NewReplacer("0.0.0.0", address[name], "*", address[name]).Replace(arg)
			for other, at := range address {
				if arg == other {
					arg = at
				}
				arg = strings.Replace(arg, "//"+other+":", "//"+at+":", 1)
			}
			s.Command[i] = arg
		}
		start(t, name, s.Command...)
	}
	client := &http.Client{Timeout: 10 * time.Second}
	untilOK(t, client, "http://"+address["tandem"]+":9091/readyz", patience(20*time.Second))
	body := `{"model":"demo","max_tokens":8,"messages":[{"role":"user","content":"Hello"}]}`
	resp, err := client.Post("http://"+address["tandem"]+":8000/v1/chat/completions", "application/json",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a chat got status %d", resp.StatusCode)
	}
	eventually(t, patience(20*time.Second), func() error { // events arrive too
		for _, name := range []string{"p0", "p1", "d0", "d1"} {
			url := "http://" + address[name] + ":8000"
			if n, err := scrape(client, "http://"+address["tandem"]+":9091/metrics", "tandem_replica_up",
				strings.TrimPrefix(url, "http://")); err != nil || n != 1 {
				return fmt.Errorf("%s: %v, %w", name, n, err)
			}
		}
		return nil
	})
}

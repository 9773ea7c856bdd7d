//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config/certtest"
)

// A router with 256 file descriptors serves HTTP/2 clients with 400 concurrent requests, and batches with
// 64 prompts. Each request gets its answer, or a 503 that says what to change. No engine is blamed, and
// every client is served afterwards.
func TestFewDescriptorsAndManyRequests(t *testing.T) {
	cert := certtest.New(t, 1)
	dir := t.TempDir()
	for name, data := range map[string][]byte{"cert": cert.Cert, "key": cert.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFleet(t, setting{
		files: 256,
		extra: "tls: {cert: " + filepath.Join(dir, "cert") + ", key: " + filepath.Join(dir, "key") + "}",
	})
	clients := make([]*http.Client, 4)
	for i := range clients {
		clients[i] = &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		defer clients[i].CloseIdleConnections()
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	ask := func(client *http.Client, body map[string]any) {
		raw, _ := json.Marshal(body)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.front+completions, bytes.NewReader(raw))
		resp, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		what := fmt.Sprintf("HTTP/%d, %d %v", resp.ProtoMajor, resp.StatusCode, err)
		if resp.StatusCode == 503 && resp.Header.Get("Retry-After") != "" {
			_, what, _ = strings.Cut(string(text), "(")
			what = "503 " + what[:min(len(what), len("ulimit -n"))]
		}
		mu.Lock()
		defer mu.Unlock()
		seen[what]++
	}
	one := map[string]any{"model": "sim", "prompt": "tell me", "max_tokens": 100, "ignore_eos": true}
	many := map[string]any{
		"model": "sim", "prompt": strings.Split(strings.Repeat("tell me,", 63)+"more", ","), "max_tokens": 100,
		"ignore_eos": true,
	}
	// Each client has its connection before the crowd comes. Otherwise each request of the crowd dials, and the
	// router closes connections for which it has no place.
	for _, client := range clients {
		ask(client, one)
	}
	for i := range 400 {
		all.Go(func() { ask(clients[i%len(clients)], one) })
	}
	for i := range 3 {
		all.Go(func() { ask(clients[i%len(clients)], many) })
	}
	all.Wait()
	const served, refused = "HTTP/2, 200 <nil>", "503 ulimit -n"
	if n := seen[served] + seen[refused]; n != len(clients)+403 || seen[served] == 0 || seen[refused] == 0 {
		t.Errorf("want %q and %q alone, got %v", served, refused, seen)
	}
	f.ready(f.prefill[:2], f.decode[:2])
	if n := f.metric("tandem_ejections_total"); n != 0 {
		t.Errorf("%g ejections", n)
	}
	if strings.Contains(f.router.out.String(), "too many open files") {
		t.Error("the router ran out of file descriptors")
	}
	before := seen[served]
	if ask(clients[0], one); seen[served] != before+1 {
		t.Errorf("the router does not serve afterwards: %v", seen)
	}
}

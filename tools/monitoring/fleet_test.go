//go:build prometheus

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fleet is a router with two prefill and three decode engines. The test sets their faults and the
// configuration.
type fleet struct {
	t                  *testing.T
	front, admin, file string
	serve              *exec.Cmd
	prefill, decode    []*sim
}

// sim is a simulated engine. events is its event endpoint in the configuration, if it has one.
type sim struct{ url, control, events string }

// The lines that the programs print when they are ready.
var (
	serves    = regexp.MustCompile(`^tandem serves on (\S+), admin on (\S+)`)
	simulates = regexp.MustCompile(`^(http://\S+) .*control=(\S+)`)
)

// newFleet starts the router and the engines. flags are extra flags of the engines.
func newFleet(t *testing.T, flags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, file: filepath.Join(t.TempDir(), "tandem.yaml")}
	for range 2 {
		f.prefill = append(f.prefill, f.engine(flags...))
	}
	for range 3 {
		f.decode = append(f.decode, f.engine(flags...))
	}
	f.configure("")
	var at []string
	f.serve, at = start(t, serves, binary, "serve", "--config", f.file)
	f.front, f.admin = at[0], at[1]
	return f
}

func (f *fleet) engine(flags ...string) *sim {
	f.t.Helper()
	_, at := start(f.t, simulates, binary, slices.Concat([]string{
		"sim", "--model", "m", "--listen", "127.0.0.1:0", "--events", "tcp://127.0.0.1:0",
		"--control", "127.0.0.1:0", "--enable-scale-out", "--lease", "30s", "--adapter", "ad",
	}, flags)...)
	return &sim{url: at[0], control: at[1]}
}

// configure writes the configuration file. more is appended.
func (f *fleet) configure(more string) {
	f.t.Helper()
	var b strings.Builder
	b.WriteString("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nlocal: never\npools:\n")
	pool := func(name string, engines []*sim) {
		fmt.Fprintf(&b, "  %s:\n    replicas:\n", name)
		for i, e := range engines {
			events := ""
			if e.events != "" {
				events = fmt.Sprintf(", events: {endpoint: %q}", e.events)
			}
			fmt.Fprintf(&b, "      - {name: %c%d, url: %q%s}\n", name[0], i, e.url, events)
		}
	}
	pool("prefill", f.prefill)
	pool("decode", f.decode)
	if err := os.WriteFile(f.file, []byte(b.String()+more), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// fault sets a fault of engines, written as JSON.
func (f *fleet) fault(what string, on ...*sim) {
	f.t.Helper()
	for _, e := range on {
		resp, err := http.Post(e.control+"/fault", "application/json", strings.NewReader(what))
		if err != nil {
			f.t.Fatal(err)
		}
		if resp.StatusCode >= 300 {
			text, _ := io.ReadAll(resp.Body)
			f.t.Errorf("%s: %s %s", what, resp.Status, text)
		}
		_ = resp.Body.Close()
	}
}

// clear ends all faults.
func (f *fleet) clear() { f.fault(`{"kind":"clear"}`, slices.Concat(f.prefill, f.decode)...) }

// order drains or undrains a replica.
func (f *fleet) order(act, replica string) {
	f.t.Helper()
	resp, err := http.Post("http://"+f.admin+"/-/"+act+"?replica="+replica, "", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		f.t.Errorf("%s %s: %s", act, replica, resp.Status)
	}
	_ = resp.Body.Close()
}

// traffic sends short streams, several at a time, until the test ends or the returned function is called.
func (f *fleet) traffic(atOnce int) (stop func()) {
	return f.stream("somebody", atOnce, 20, func(n int) string {
		return fmt.Sprint(strings.Repeat("some words of a prompt ", 60), n%200)
	})
}

// flood sends long prompts that have nothing in common.
func (f *fleet) flood(atOnce int) (stop func()) {
	return f.stream("somebody", atOnce, 100, func(n int) string {
		return fmt.Sprint(n, strings.Repeat(" another long prompt with words", 400))
	})
}

// long sends short prompts of a user with long answers.
func (f *fleet) long(user string, atOnce int) (stop func()) {
	return f.stream(user, atOnce, 300, func(n int) string { return fmt.Sprint("tell me more of ", n) })
}

// stream sends streams of a user with this number of tokens, atOnce at a time.
func (f *fleet) stream(user string, atOnce, tokens int, prompt func(n int) string) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	f.t.Cleanup(stop)
	for worker := range atOnce {
		go func() {
			for n := worker; ctx.Err() == nil; n += atOnce {
				f.chat(ctx, fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":%d,"temperature":0,`+
					`"user":%q,"messages":[{"role":"user","content":%q}]}`, tokens, user, prompt(n)))
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	return stop
}

// chat sends one request and reads the answer.
func (f *fleet) chat(ctx context.Context, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.front+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		return
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

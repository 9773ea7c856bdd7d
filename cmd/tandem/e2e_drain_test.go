//go:build linux

package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The procedure of docs/operations.md, for one engine of each pool and under load: drain, wait, stop the
// engine, start another one, use it again. No client sees an error, and the engine gets no new requests
// after the drain. A reload in between does not change the drain. A restart of a router with a state file
// does not change it either.
func TestAnEngineIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state.json")
	f := newFleet(t, setting{engines: fast, extra: fmt.Sprintf("state: {file: %q}\n", state)})
	l := f.traffic(8, 24)
	for _, e := range []*engine{f.prefill[0], f.decode[0]} {
		l.more(60)
		f.tandem(0, "is drained", "drain", "--wait", "--timeout", "60s", e.id)
		before := f.series(e.url+"/metrics", "vllm:prompt_tokens_total")
		if strings.Count(f.router.out.String(), "stop it now\" replica="+e.id) != 1 {
			t.Errorf("the router must log exactly once that %s is empty", e.id)
		}
		if status, said := f.post("/-/reload"); status != http.StatusOK {
			t.Errorf("reload: %d %s", status, said)
		}
		l.more(60)
		if n := f.series(e.url+"/metrics", "vllm:prompt_tokens_total") - before; n != 0 {
			t.Errorf("%s got %v prompt tokens after it was drained", e.id, n)
		}
		e.kill()
		l.more(60)
		e.back()
		eventually(t, patience(10*time.Second), func() error {
			if f.metric("tandem_replica_up", `replica="`+e.id+`"`) != 1 {
				return fmt.Errorf("%s has not come back", e.id)
			}
			return nil
		})
		before = f.series(e.url+"/metrics", "vllm:prompt_tokens_total") // after the router has probed it
		l.more(30)
		if n := f.series(e.url+"/metrics", "vllm:prompt_tokens_total") - before; n != 0 {
			t.Errorf("the new %s got %v prompt tokens before undrain", e.id, n)
		}
		f.tandem(0, "is in use", "undrain", e.id)
		f.usedAgain(e)
	}
	l.end()
	if len(l.errors) > 0 {
		t.Errorf("clients saw errors: %v", l.errors)
	}
	f.tandem(0, "", "drain", "d0")
	f.router.signal(syscall.SIGTERM)
	f.router.exit(patience(10 * time.Second))
	f.serve()
	eventually(t, patience(10*time.Second), func() error {
		if _, h := f.health(); !strings.Contains(fmt.Sprint(h), "d0 false drained") || !h.Ready {
			return fmt.Errorf("%v", h)
		}
		return nil
	})
	f.unused(f.decode[0])
	f.tandem(0, "is in use", "undrain", "d0")
	f.traffic(4, 8)
	f.usedAgain(f.decode[0])
}

// usedAgain waits until the engine computes a part of the traffic.
func (f *fleet) usedAgain(e *engine) {
	f.t.Helper()
	count := func() float64 { return f.series(e.url+"/metrics", "vllm:generation_tokens_total") }
	if e.role == "prefill" {
		count = func() float64 { return f.series(e.url+"/metrics", "vllm:prompt_tokens_total") }
	}
	before := count()
	eventually(f.t, patience(30*time.Second), func() error {
		if count() <= before {
			return fmt.Errorf("%s is not used", e.id)
		}
		return nil
	})
}

// The refusals of `tandem drain`, and its timeout.
func TestExitCodesOfDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	streams := f.longStreams(4)
	e := f.busiest(f.decode)
	other := f.decode[0]
	if other == e {
		other = f.decode[1]
	}
	f.tandem(3, e.id+" is not empty: not in time", "drain", "--wait", "--timeout", "1500ms", e.id)
	f.tandem(1, "last usable decode replica", "drain", other.id)
	f.tandem(1, `no replica has the name or URL "d7"; there are p0, p1, d0, d1`, "drain", "d7")
	f.tandem(2, "name one replica", "drain")
	f.tandem(0, "note: a restart of the router forgets this", "drain", e.id)
	f.tandem(0, "is in use", "undrain", e.id)
	f.hurry(streams)
	p := start(t, "tandem", "drain", e.id, "--admin", strings.TrimPrefix(f.front, "http://"))
	code := p.exit(10 * time.Second)
	if code != 1 || !strings.Contains(p.out.String(), "this is not a Tandem admin listener; try port 9091") {
		t.Errorf("the front: exit code %d, %s", code, p.out.String())
	}
}

// tandem runs the command line against the router, and checks the exit code and the words of the output.
func (f *fleet) tandem(code int, words string, args ...string) {
	f.t.Helper()
	args = append([]string{args[0], "--admin", strings.TrimPrefix(f.admin, "http://")}, args[1:]...)
	p := start(f.t, "tandem", args...)
	if got := p.exit(patience(70 * time.Second)); got != code || !strings.Contains(p.out.String(), words) {
		f.t.Errorf("tandem %v: exit code %d, want %d and %q:\n%s", args, got, code, words, p.out.String())
	}
}

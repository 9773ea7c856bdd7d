//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/kubernetestest"
)

// podOf returns the pod of an engine.
func podOf(e *engine) kubernetestest.Pod {
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(e.url, "http://"))
	number, _ := strconv.Atoi(port)
	return kubernetestest.Ready(e.id, e.role, host, number)
}

// refuses waits until the router gives a replica no requests, but still knows it.
func (f *fleet) refuses(e *engine) {
	f.t.Helper()
	eventually(f.t, 10*time.Second, func() error {
		_, h := f.health()
		if ready, known, _ := h.of(e.id); ready || !known {
			return fmt.Errorf("%s: ready %v, known %v", e.id, ready, known)
		}
		return nil
	})
}

// Pods join, are being deleted, leave and change their address, under load and without a failed request.
// When the API server does not answer, nothing changes: the serving replicas continue.
func TestMembersFoundInKubernetes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast, spare: 1})
	s := kubernetestest.Start(t)
	token := filepath.Join(t.TempDir(), "token")
	f.must(os.WriteFile(token, []byte("first"), 0o600))
	streams := f.longStreams(6)
	l := f.traffic(2, 8)

	s.Refuse(http.StatusForbidden) // a reload to an API server without an answer removes no member
	f.set.extra = fmt.Sprintf("discovery: {kubernetes: {namespace: llm, server: %q, token_file: %q, "+
		"prefill: {selector: role=prefill}, decode: {selector: role=decode}}}", s.URL, token)
	f.write(f.yaml(nil, nil))
	f.found("waiting")
	f.ready(f.prefill[:2], f.decode[:2])
	for i := range 2 {
		s.Put(podOf(f.prefill[i]))
		s.Put(podOf(f.decode[i]))
	}
	s.Refuse(0)
	f.found("fresh")
	f.ready(f.prefill[:2], f.decode[:2])

	s.Put(podOf(f.prefill[2])) // p2 and d2 join
	s.Put(podOf(f.decode[2]))
	f.ready(f.prefill, f.decode)
	f.used(f.prefill[2])
	f.used(f.decode[2])

	s.Put(podOf(f.prefill[0]).Deleting()) // p0 and d0 leave while they run streams
	s.Put(podOf(f.decode[0]).Deleting())
	f.refuses(f.prefill[0])
	f.refuses(f.decode[0])
	f.unused(f.prefill[0])
	s.Remove("p0")
	s.Remove("d0")
	f.ready(f.prefill[1:], f.decode[1:])

	s.Refuse(http.StatusServiceUnavailable)
	s.Remove("p1") // the router does not learn of this
	f.found("held")
	f.ready(f.prefill[1:], f.decode[1:])
	if n := f.metric("tandem_discovery_failing", `source="kubernetes"`); n != 2 {
		t.Errorf("the metrics have %v failing queries, want 2", n)
	}
	s.Put(podOf(f.prefill[1]))
	s.Refuse(0)
	f.found("fresh")
	f.ready(f.prefill[1:], f.decode[1:])

	f.set.extra = "" // the discovered members are now in the file
	f.write(f.yaml(f.prefill[1:], f.decode[1:]))
	f.accepted()
	f.ready(f.prefill[1:], f.decode[1:])

	f.noClientNoticed(streams, l)
}

// A router that starts while the API server is unavailable uses the pods that its predecessor knew, and
// reports them as old until the API server answers. If an engine of another model has the address of a
// pod, the router does not use it.
func TestTheRouterStartsWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	s := kubernetestest.Start(t)
	token := filepath.Join(t.TempDir(), "token")
	f.must(os.WriteFile(token, []byte("first"), 0o600))
	for _, e := range f.engines() {
		s.Put(podOf(e))
	}
	f.set.extra = fmt.Sprintf("state: {file: %q}\n"+
		"discovery: {kubernetes: {namespace: llm, server: %q, token_file: %q, "+
		"prefill: {selector: role=prefill}, decode: {selector: role=decode}}}",
		filepath.Join(t.TempDir(), "state.json"), s.URL, token)
	f.write(f.yaml(nil, nil))
	f.found("fresh")
	f.ready(f.prefill, f.decode)
	f.router.signal(syscall.SIGTERM)
	f.router.exit(10 * time.Second)

	s.Refuse(http.StatusServiceUnavailable)
	s.Remove("d1") // the router does not learn that another pod has the address
	d1 := f.decode[1]
	d1.kill()
	d1.args = append(d1.args, "--model", "other")
	d1.back()
	f.serve()
	f.found("remembered")
	f.ready(f.prefill, f.decode)
	if n := f.metric("tandem_discovery_remembered"); n != 2 {
		t.Errorf("the metrics have %v queries with old answers, want 2", n)
	}
	f.used(f.decode[0])
	f.unused(d1)

	s.Refuse(0)
	f.found("fresh")
	f.ready(f.prefill, f.decode[:1])
	if n := f.metric("tandem_discovery_remembered"); n != 0 {
		t.Errorf("the metrics have %v queries with old answers, want 0", n)
	}
	f.used(f.decode[0])
}

// Every field of discovery.kubernetes is changed under load, to a right or a wrong value. No change
// removes a serving replica, and no request fails.
func TestEveryFieldOfDiscoveryIsReloadedUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	s, second := kubernetestest.Start(t), kubernetestest.Start(t)
	token := filepath.Join(t.TempDir(), "token")
	f.must(os.WriteFile(token, []byte("first"), 0o600))
	for _, e := range f.engines() {
		s.Put(podOf(e))
		second.Put(podOf(e))
	}
	fields := func(changed string) string {
		all := map[string]string{
			"namespace": "llm", "server": strconv.Quote(s.URL), "token_file": strconv.Quote(token),
			"prefill": "{selector: role=prefill}", "decode": "{selector: role=decode}",
		}
		if key, value, ok := strings.Cut(changed, ": "); ok {
			all[key] = value
		}
		var text []string
		for key, value := range all {
			text = append(text, key+": "+value)
		}
		return "discovery: {kubernetes: {" + strings.Join(text, ", ") + "}}"
	}
	f.set.extra = fields("")
	f.write(f.yaml(nil, nil))
	f.found("fresh")
	f.ready(f.prefill, f.decode)
	streams := f.longStreams(4)
	l := f.traffic(2, 8)
	for _, c := range []struct{ changed, state string }{
		{"selector: role", "fresh"},
		{`selector: "app=nothing-has-it"`, "fresh"},
		{`prefill: {selector: "role in (prefill)", port: vllm}`, "fresh"},
		{"decode: {selector: role=decode, port: no-such-port}", "fresh"},
		{"decode: {selector: role=decode, ranks: 2}", "fresh"}, // the second rank does not exist
		{`decode: {selector: role=decode, events: {endpoint: "tcp://*:1"}}`, "fresh"},
		{"preset: leaderworkerset", "fresh"}, // no pod is a leader
		{"revision: no-such-label", "fresh"},
		{"place: {zone: zone}", "fresh"}, // reading nodes is forbidden
		{"https: true", "fresh"},         // no engine speaks TLS
		{"inference_pool: nothing-has-this-name", "waiting"},
		{"namespace: other", "waiting"},
		{"server: " + strconv.Quote(second.URL), "fresh"},
		{"token_file: " + strconv.Quote(token+"-that-is-missing"), "waiting"},
		{`ca: "/no/such/file"`, "waiting"},
	} {
		before := f.metric("tandem_config_reloads_total")
		f.set.extra = fields(c.changed)
		f.write(f.yaml(nil, nil))
		eventually(t, patience(10*time.Second), func() error {
			if f.metric("tandem_config_reloads_total") == before {
				return errors.New("not reloaded: " + c.changed)
			}
			return nil
		})
		f.found(c.state)
		l.more(6)
	}
	f.set.extra = ""
	f.write(f.yaml(f.prefill, f.decode))
	f.ready(f.prefill, f.decode)
	s.Stop() // needed because the router keeps idle connections for a while
	second.Stop()
	f.noClientNoticed(streams, l)
}

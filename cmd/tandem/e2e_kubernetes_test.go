//go:build linux && kubernetes

package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// saysOfDiscovery waits until the errors of both queries contain these words.
func (f *fleet) saysOfDiscovery(words string) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, func() error {
		var h struct{ Discovery []struct{ Error string } }
		f.get(f.admin+"/readyz", &h)
		for _, d := range h.Discovery {
			if !strings.Contains(d.Error, words) {
				return fmt.Errorf("discovery says %q", d.Error)
			}
		}
		return nil
	})
}

// emptied waits until a replica gets no more requests and has none left.
func (f *fleet) emptied(e *engine) {
	f.t.Helper()
	eventually(f.t, 20*time.Second, func() error {
		_, h := f.health()
		if _, _, why := h.of(e.id); why != "drained" {
			return fmt.Errorf("%s: %s", e.id, why)
		}
		return nil
	})
}

// ready makes the pod of a running engine.
func (c *apiCluster) ready(e *engine) {
	c.t.Helper()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(e.url, "http://"))
	c.create(e.id, e.role, "one", port)
	c.status(e.id, "127.0.0.1", "True")
}

// Pods of a real API server join, leave and become unready, under load and without a failed request. The
// manifests in deploy/kubernetes allow the router what it needs. The router continues while the API server
// is unavailable.
func TestPodsOfKubernetes(t *testing.T) {
	c := newCluster(t)
	c.apply("../../deploy/kubernetes/tandem.yaml", "RoleBinding")
	f := newFleet(t, setting{engines: fast, spare: 1})
	streams := f.longStreams(6)
	f.pace(200) // the streams must last longer than a start of the API server
	l := f.traffic(2, 8)

	f.set.extra = c.discovery()
	f.write(f.yaml(nil, nil)) // the former replicas serve while the API server forbids reading pods
	f.found("waiting")
	f.saysOfDiscovery("allow get, list and watch of pods in namespace llm")
	f.ready(f.prefill[:2], f.decode[:2])
	for i := range 2 {
		c.ready(f.prefill[i])
		c.ready(f.decode[i])
	}
	c.apply("../../deploy/kubernetes/tandem.yaml")
	f.found("fresh")
	f.ready(f.prefill[:2], f.decode[:2])

	c.ready(f.prefill[2])
	c.ready(f.decode[2])
	f.ready(f.prefill, f.decode)
	f.used(f.prefill[2])
	f.used(f.decode[2])

	c.status("p2", "127.0.0.1", "False")
	f.refuses(f.prefill[2])
	c.status("p2", "127.0.0.1", "True")
	f.ready(f.prefill, f.decode)

	c.remove("p0") // p0 and d0 leave while they run streams
	c.remove("d0")
	f.emptied(f.prefill[0])
	f.refuses(f.decode[0])
	f.unused(f.prefill[0])
	c.removed("p0")
	c.removed("d0")
	f.ready(f.prefill[1:], f.decode[1:])

	c.server.kill()
	f.found("held")
	f.saysOfDiscovery("connection refused")
	f.ready(f.prefill[1:], f.decode[1:])
	c.start()
	c.remove("d1") // the router may not have connected to the new server yet
	f.found("fresh")
	f.refuses(f.decode[1])

	f.set.extra = "" // the discovered members are now in the file
	f.write(f.yaml(f.prefill[1:], f.decode[2:]))
	f.accepted()
	f.ready(f.prefill[1:], f.decode[2:])
	f.noClientNoticed(streams, l)
}

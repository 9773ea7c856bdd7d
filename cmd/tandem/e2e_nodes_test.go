//go:build linux && kubernetes

package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/discovery/kubernetes"
	"github.com/tandem-router/tandem/internal/panics"
)

// follow runs the source of pods with one more field until the test ends, and returns what the source has
// found.
func (c *apiCluster) follow(field string) (found func() []discovery.Found) {
	c.t.Helper()
	text := strings.TrimSuffix(c.discovery(), "}}") + ", " + field + "}}"
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	source := kubernetes.New(panics.Guard{Log: slog.New(slog.DiscardHandler)})
	source.Configure(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { source.Run(ctx, func() {}) })
	c.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return func() []discovery.Found { return source.Found(cfg) }
}

// A real API server forbids reading nodes until deploy/kubernetes/nodes.yaml is applied. The router finds
// pods before that, and after that the pods have the places of their nodes.
func TestPlacesOfKubernetes(t *testing.T) {
	c := newCluster(t)
	c.apply("../../deploy/kubernetes/tandem.yaml")
	for i, name := range []string{"p0", "d0"} {
		c.create(name, []string{"prefill", "decode"}[i], "", "8000")
		c.status(name, fmt.Sprintf("10.0.0.%d", i+1), "True")
		c.post("/api/v1/nodes", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q,
			"labels": {"topology.kubernetes.io/zone": "z%d"}}}`, "node-of-"+name, i))
	}
	found := c.follow("place: {zone: topology.kubernetes.io/zone}")
	wait := func(want, told string) {
		t.Helper()
		eventually(t, 40*time.Second, func() error {
			var got, left []string
			for _, f := range found() {
				if left = append(left, f.Left...); f.State != discovery.Fresh {
					return fmt.Errorf("%s is %v: %s", f.Pool, f.State, f.Err)
				}
				for _, r := range f.Replicas {
					got = append(got, r.ID()+" in "+r.Place.Zone)
				}
			}
			said := strings.Join(left, "")
			if strings.Join(got, ", ") != want || !strings.Contains(said, told) || told == "" && said != "" {
				return fmt.Errorf("%q, told %q", got, left)
			}
			return nil
		})
	}
	wait("p0 in , d0 in ", "kubectl apply --server-side -f deploy/kubernetes/nodes.yaml")
	c.apply("../../deploy/kubernetes/nodes.yaml")
	wait("p0 in z0, d0 in z1", "")
}

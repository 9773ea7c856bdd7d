//go:build linux && kubernetes

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A real API server takes all manifests and the chart with each file of values, as kubectl apply
// --server-side sends manifests, without a warning. LeaderWorkerSet, ServiceMonitor and ScaledObject are left
// out: the test does not install the definitions of these kinds.
func TestManifestsOfKubernetes(t *testing.T) {
	c := newCluster(t)
	c.define("sigs.k8s.io/gateway-api@v1.6.3", "gateway.networking.k8s.io/v1", "gateways", "httproutes")
	without := []string{"LeaderWorkerSet", "ServiceMonitor", "ScaledObject"}
	for _, name := range []string{"engines", "monitoring"} {
		c.post("/api/v1/namespaces",
			fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, name))
	}
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	for _, file := range files {
		c.apply(file, without...)
	}
	kinds := map[string]bool{}
	for _, values := range []string{"", "many.yaml", "files.yaml"} {
		args := []string{"template", "chart", "../../deploy/helm/tandem", "--namespace", "llm"}
		if values != "" {
			args = append(args, "--values", "../../tools/chart/testdata/"+values)
		}
		out, err := exec.Command("../../build/helm", args...).Output()
		if err != nil {
			t.Fatalf("helm %v: %v", args, err)
		}
		for _, kind := range c.applyAll("the chart with "+values, out, without...) {
			kinds[kind] = true
		}
	}
	for _, kind := range []string{"HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget"} {
		if !kinds[kind] {
			t.Errorf("the chart has made no %s", kind)
		}
	}
}

// define gives the cluster the resource definitions of a Go module, and waits until the cluster serves the
// resources.
func (c *apiCluster) define(module, group string, resources ...string) {
	c.t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var is struct{ Dir, Error string }
	if e := json.Unmarshal(out, &is); err != nil || e != nil {
		c.t.Fatalf("%s: %v %v %s", module, err, e, is.Error)
	}
	group, version, _ := strings.Cut(group, "/")
	for _, name := range resources {
		c.apply(filepath.Join(is.Dir, "config/crd/standard", group+"_"+name+".yaml"))
		eventually(c.t, 30*time.Second, func() error {
			path := fmt.Sprintf("/apis/%s/%s/%s", group, version, name)
			if code, _, said := c.ask(http.MethodGet, path, "", ""); code != http.StatusOK {
				return fmt.Errorf("%s: %d %s", path, code, said)
			}
			return nil
		})
	}
}

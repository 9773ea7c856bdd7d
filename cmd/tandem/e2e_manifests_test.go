//go:build linux && kubernetes

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// definitions are the Go modules that define the kinds in the manifests.
var definitions = []struct{ module, folder, group, version, resource string }{
	{"sigs.k8s.io/gateway-api@v1.6.3", "config/crd/standard", "gateway.networking.k8s.io", "v1", "gateways"},
	{"sigs.k8s.io/gateway-api@v1.6.3", "config/crd/standard", "gateway.networking.k8s.io", "v1", "httproutes"},
	{
		"sigs.k8s.io/gateway-api-inference-extension@v1.3.0", "config/crd/bases",
		"inference.networking.k8s.io", "v1", "inferencepools",
	},
	{"sigs.k8s.io/lws@v0.8.0", "config/crd/bases", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"},
	{
		"github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd",
		"monitoring.coreos.com", "v1", "servicemonitors",
	},
	{"github.com/kedacore/keda/v2@v2.21.0", "config/crd/bases", "keda.sh", "v1alpha1", "scaledobjects"},
}

// A real API server accepts all manifests, and the chart with each file of values, without a warning. They
// are sent as kubectl apply --server-side sends manifests. The API server knows the fields of every kind:
// an unknown field is an error.
func TestManifestsOfKubernetes(t *testing.T) {
	c := newCluster(t)
	for _, of := range definitions {
		c.define(of.module, of.folder, of.group, of.version, of.resource)
	}
	for _, name := range []string{"engines", "monitoring"} {
		c.post("/api/v1/namespaces",
			fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, name))
	}
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		for _, kind := range c.apply(file) {
			kinds[kind] = true
		}
	}
	for _, values := range []string{"", "many.yaml", "files.yaml"} {
		args := []string{"template", "chart", "../../deploy/helm/tandem", "--namespace", "llm"}
		if values != "" {
			args = append(args, "--values", "../../tools/chart/testdata/"+values)
		}
		out, err := exec.Command("../../build/helm", args...).Output()
		if err != nil {
			t.Fatalf("helm %v: %v", args, err)
		}
		for _, kind := range c.applyAll("the chart with "+values, out) {
			kinds[kind] = true
		}
	}
	for _, kind := range []string{
		"HTTPRoute", "HorizontalPodAutoscaler", "InferencePool", "LeaderWorkerSet", "NetworkPolicy",
		"PodDisruptionBudget", "ScaledObject", "ServiceMonitor",
	} {
		if !kinds[kind] {
			t.Errorf("no %s was applied", kind)
		}
	}
}

// define gives the cluster the definition of a resource from a folder of a Go module, and waits until the
// cluster serves the resource.
func (c *apiCluster) define(module, folder, group, version, resource string) {
	c.t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var is struct{ Dir, Error string }
	if e := json.Unmarshal(out, &is); err != nil || e != nil {
		c.t.Fatalf("%s: %v %v %s", module, err, e, is.Error)
	}
	c.apply(filepath.Join(is.Dir, folder, group+"_"+resource+".yaml"))
	eventually(c.t, 30*time.Second, func() error {
		path := fmt.Sprintf("/apis/%s/%s/%s", group, version, resource)
		if code, _, said := c.ask(http.MethodGet, path, "", ""); code != http.StatusOK {
			return fmt.Errorf("%s: %d %s", path, code, said)
		}
		return nil
	})
}

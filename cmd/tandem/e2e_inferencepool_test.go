//go:build linux && kubernetes

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An InferencePool of a real API server says which pods are there. deploy/kubernetes/epp.yaml has the right
// to read it. Each step that is missing is told, and a deleted InferencePool takes nobody away.
func TestInferencePoolOfKubernetes(t *testing.T) {
	const manifests = "../../deploy/kubernetes/epp.yaml"
	c := newCluster(t)
	c.apply("../../deploy/kubernetes/tandem.yaml")
	for i, name := range []string{"p0", "d0"} {
		c.create(name, []string{"prefill", "decode"}[i], "", "8200")
		c.status(name, fmt.Sprintf("10.0.0.%d", i+1), "True")
	}
	found := c.follow("inference_pool: llm")
	wait := func(want, told string) {
		t.Helper()
		eventually(t, 40*time.Second, func() error {
			got, said := "", ""
			for _, f := range found() {
				got += f.Pool + " " + f.State.String()
				for _, r := range f.Replicas {
					got += fmt.Sprintf(" %s at %s for gateways %d", r.ID(), r.URL, r.GatewayPort)
				}
				got += "; "
				said += f.Err + strings.Join(f.Left, "")
			}
			if got != want || !strings.Contains(said, told) || told == "" && said != "" {
				return fmt.Errorf("%q, told %q", got, said)
			}
			return nil
		})
	}
	const nothing = "prefill waiting; decode waiting; "
	wait(nothing, "allow get, list and watch of inferencepools in namespace llm, as "+manifests[len("../../"):])
	c.apply(manifests, "InferencePool", "HTTPRoute")
	wait(nothing, "does not know InferencePools of inference.networking.k8s.io/v1")
	for _, of := range definitions {
		if of.resource == "inferencepools" {
			c.define(of.module, of.folder, of.group, of.version, of.resource)
		}
	}
	wait(nothing, "the namespace llm has no InferencePool llm")
	c.apply(manifests, "HTTPRoute")
	wait("prefill fresh; decode fresh; ",
		"in InferencePool llm, which selects llm-d.ai/inference-serving=true: set")

	const path = "/apis/inference.networking.k8s.io/v1/namespaces/llm/inferencepools/llm"
	const onlyD = "decode fresh d0 at http://10.0.0.2:8200 for gateways 8000; "
	c.must(http.MethodPatch, path, "application/merge-patch+json", `{"spec": {"selector": {"matchLabels":
		{"llm-d.ai/inference-serving": null, "llm-d.ai/role": "decode"}}}}`)
	wait("prefill fresh; "+onlyD, "which selects llm-d.ai/role=decode")
	c.must(http.MethodDelete, path, "", "")
	held := strings.ReplaceAll("prefill fresh; "+onlyD, "fresh", "held")
	wait(held, "the namespace llm has no InferencePool llm")
	c.create("d1", "decode", "", "8200")
	c.status("d1", "10.0.0.3", "True")
	wait(strings.TrimSuffix(held, "; ")+" d1 at http://10.0.0.3:8200 for gateways 8000; ",
		"the namespace llm has no InferencePool llm")
}

//go:build chart

package chart

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

const (
	helmBinary   = "../../build/helm"
	tandemBinary = "../../build/tandem"
	chart        = "../../deploy/helm/tandem"
)

// object is a JSON object of a manifest.
type object map[string]any

// at returns the value at a path of fields; nil if it is missing. A number is an index.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, p := range path {
		switch key := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

func helm(t *testing.T, args ...string) (stdout, said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), helmBinary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), out.String() + errs.String(), err
}

// render returns the manifests of the chart by kind and name.
func render(t *testing.T, args ...string) map[string]object {
	t.Helper()
	out, said, err := helm(t, append([]string{"template", "tandem", chart, "--namespace", "llm"}, args...)...)
	if err != nil {
		t.Fatalf("helm template %v: %v\n%s", args, err, said)
	}
	all := map[string]object{}
	documents := yaml.NewDecoder(strings.NewReader(out))
	for {
		var o object
		switch err := documents.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%v in\n%s", err, out)
		case o == nil:
			continue
		}
		name, _ := o.at("metadata", "name").(string)
		kind, _ := o["kind"].(string)
		key := kind + " " + name
		if _, twice := all[key]; twice || kind == "" || name == "" {
			t.Fatalf("a manifest without kind and name of its own: %q", key)
		}
		if o.at("metadata", "namespace") == nil && !strings.HasPrefix(kind, "Cluster") {
			t.Errorf("%s names no namespace", key)
		}
		all[key] = o
	}
}

// With default values and with each file of values: helm's linter has no remark, tandem accepts the
// configuration, and the pod has enough time to end.
func TestTheChartWithSeveralValues(t *testing.T) {
	usual := []string{
		"ConfigMap tandem", "Deployment tandem", "NetworkPolicy tandem", "PodDisruptionBudget tandem",
		"Role tandem", "RoleBinding tandem", "Service tandem", "Service tandem-admin", "ServiceAccount tandem",
	}
	for _, c := range []struct {
		values string
		more   []string
		less   []string
		grace  uint64
	}{
		{"", nil, nil, 75},
		{
			"many.yaml",
			[]string{
				"HorizontalPodAutoscaler tandem", "ServiceMonitor tandem", "ServiceAccount router",
				"ClusterRole llm-tandem-nodes", "ClusterRoleBinding llm-tandem-nodes",
			},
			[]string{"ServiceAccount tandem"},
			375,
		},
		{
			"files.yaml", nil,
			[]string{"NetworkPolicy tandem", "PodDisruptionBudget tandem", "Role tandem", "RoleBinding tandem"},
			15,
		},
	} {
		t.Run("with "+c.values, func(t *testing.T) {
			var args []string
			if c.values != "" {
				args = []string{"--values", filepath.Join("testdata", c.values)}
			}
			if _, said, err := helm(t, append([]string{"lint", "--strict", chart}, args...)...); err != nil ||
				strings.Contains(said, "[WARNING]") || strings.Contains(said, "[ERROR]") {
				t.Errorf("helm lint: %v\n%s", err, said)
			}
			all := render(t, args...)
			var got []string
			for key := range all {
				got = append(got, key)
			}
			slices.Sort(got)
			want := slices.DeleteFunc(append(slices.Clone(usual), c.more...), func(key string) bool {
				return slices.Contains(c.less, key)
			})
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("rendered %q, want %q", got, want)
			}
			config, _ := all["ConfigMap tandem"].at("data", "tandem.yaml").(string)
			accepted(t, config)
			pod := object(all["Deployment tandem"].at("spec", "template", "spec").(map[string]any))
			if grace := pod.at("terminationGracePeriodSeconds"); grace != c.grace {
				t.Errorf("terminationGracePeriodSeconds is %v, want %v", grace, c.grace)
			}
		})
	}
}

// accepted runs tandem check on the configuration of a ConfigMap.
func accepted(t *testing.T, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), tandemBinary, "check", "--offline", file)
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("tandem check: %v\n%s\n%s", err, said, config)
	}
}

// Each value reaches its field of the manifests.
func TestValuesReachTheManifests(t *testing.T) {
	all := render(t, "--values", "testdata/many.yaml")
	container := []any{"spec", "template", "spec", "containers", 0}
	for _, c := range []struct {
		in   string
		path []any
		want any
	}{
		{"Deployment tandem", []any{"spec", "replicas"}, nil}, // the autoscaler's
		{"Deployment tandem", append(slices.Clone(container), "ports", 0, "containerPort"), uint64(8443)},
		{"Deployment tandem", append(slices.Clone(container), "ports", 1, "containerPort"), uint64(9999)},
		{"Deployment tandem", append(slices.Clone(container), "readinessProbe", "httpGet", "scheme"), "HTTPS"},
		{"Deployment tandem", append(slices.Clone(container), "image"), "registry.example.com/tandem:v1.2.3"},
		{"Deployment tandem", append(slices.Clone(container), "env", 0, "name"), "VALKEY_PASSWORD"},
		{"Deployment tandem", append(slices.Clone(container), "volumeMounts", 1, "mountPath"), "/etc/certificates"},
		{"Deployment tandem", []any{"spec", "template", "spec", "volumes", 1, "secret", "secretName"}, "front"},
		{"Deployment tandem", []any{"spec", "template", "spec", "nodeSelector", "pool"}, "cpu"},
		{"Service tandem-admin", []any{"spec", "ports", 0, "port"}, uint64(9999)},
		{"Role tandem", []any{"metadata", "namespace"}, "engines"},
		{"Role tandem", []any{"rules", 1, "resources", 0}, "inferencepools"},
		{"RoleBinding tandem", []any{"subjects", 0, "namespace"}, "llm"},
		{"RoleBinding tandem", []any{"subjects", 0, "name"}, "router"},
		{
			"NetworkPolicy tandem",
			[]any{"spec", "ingress", 1, "from", 1, "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"},
			"monitoring",
		},
		{
			"HorizontalPodAutoscaler tandem",
			[]any{"spec", "metrics", 0, "pods", "metric", "name"},
			"tandem_requests_in_flight",
		},
		{"ServiceMonitor tandem", []any{"spec", "endpoints", 0, "interval"}, "5s"},
	} {
		if got := all[c.in].at(c.path...); got != c.want {
			t.Errorf("%s: %v is %v (%T), want %v", c.in, c.path, got, got, c.want)
		}
	}
	config, _ := all["ConfigMap tandem"].at("data", "tandem.yaml").(string)
	if !strings.Contains(config, "http://tandem-admin:9999") || strings.Contains(config, "preset") {
		t.Errorf("the configuration is\n%s", config)
	}
}

// Wrong values are refused with the field's name and what is wrong.
func TestWrongValuesAreRefused(t *testing.T) {
	for _, c := range []struct {
		set  string
		said []string
	}{
		{"replica=3", []string{"additional propert", "replica"}},
		{"replicas=two", []string{"replicas", "want integer"}},
		{"config.listen=8000", []string{"config/listen", "want string"}},
		{"config.admin.listen=off", []string{"config/admin/listen", "does not match pattern"}},
		{"config.discovery.kubernets.preset=llm-d", []string{"config/discovery", "kubernets"}},
		{"config.timeouts.queue=30", []string{"config/timeouts/queue", "want string"}},
		{"config.timeouts.drain=30s", []string{"config.timeouts.drain: set shutdown.drainSeconds"}},
		{"shutdown.unreadySeconds=-1", []string{"shutdown/unreadySeconds", "minimum"}},
		{"image.pullPolicy=Sometimes", []string{"image/pullPolicy", "must be one of"}},
		{"service.port=0", []string{"service/port", "minimum"}},
		{"serviceMonitor.enabled=true", []string{"networkPolicy.adminFrom: name the namespace of Prometheus"}},
		{
			"autoscaling.enabled=true,autoscaling.minReplicas=9",
			[]string{"autoscaling.minReplicas: 9 is more than autoscaling.maxReplicas 6"},
		},
		{"networkPolicy.adminFrom=monitoring", []string{"networkPolicy/adminFrom", "want array"}},
	} {
		_, said, err := helm(t, "template", "tandem", chart, "--set", c.set)
		if err == nil {
			t.Errorf("--set %s is accepted", c.set)
			continue
		}
		for _, words := range c.said {
			if !strings.Contains(said, words) {
				t.Errorf("--set %s: %q is missing in\n%s", c.set, words, said)
			}
		}
	}
}

// Tandem accepts each configuration of deploy/kubernetes, and a Deployment of it has enough time to end.
func TestManifestsWithoutHelm(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	configs := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := yaml.NewDecoder(bytes.NewReader(raw))
		for {
			var o object
			if err := documents.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o["apiVersion"] == nil || o["kind"] == nil || o.at("metadata", "name") == nil {
				t.Errorf("%s: a document without apiVersion, kind or name: %v", file, o)
			}
			if config, ok := o.at("data", "tandem.yaml").(string); ok {
				configs++
				accepted(t, config)
				ends(t, file, config)
			}
		}
	}
	if configs < 3 {
		t.Errorf("only %d configurations were found", configs)
	}
}

// ends compares the shutdown times with terminationGracePeriodSeconds of tandem.yaml, which is 75.
func ends(t *testing.T, file, config string) {
	t.Helper()
	var c struct {
		Timeouts struct{ Unready, Drain string }
	}
	if err := yaml.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	unready, err := time.ParseDuration(c.Timeouts.Unready)
	drain, err2 := time.ParseDuration(c.Timeouts.Drain)
	if err = errors.Join(err, err2); err != nil || unready < 6*time.Second || unready+drain > 70*time.Second {
		t.Errorf("%s: unready %v, drain %v: %v", file, unready, drain, err)
	}
}

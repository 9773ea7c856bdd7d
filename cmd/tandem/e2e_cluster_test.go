//go:build linux && kubernetes

package main

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// apiCluster is a real kube-apiserver over a real etcd, which tools/kube builds. There is no kubelet: a test
// writes the status of pods.
type apiCluster struct {
	t      *testing.T
	binary string
	dir    string // keys, certificates and the data of etcd
	port   string
	etcd   string // URL
	server *process
	client *http.Client
}

const clusterToken = "admin-of-the-test"

func newCluster(t *testing.T) *apiCluster {
	t.Helper()
	c := &apiCluster{t: t, binary: os.Getenv("TANDEM_KUBE"), dir: t.TempDir(), port: freePort(t)}
	if _, err := os.Stat(c.binary); err != nil {
		t.Fatalf("TANDEM_KUBE does not name the binary of tools/kube, as make e2e-k8s does: %v", err)
	}
	c.etcd = "http://127.0.0.1:" + freePort(t)
	peer := "http://127.0.0.1:" + freePort(t)
	startCommand(t, "etcd", exec.Command(c.binary, "etcd", "--data-dir", filepath.Join(c.dir, "etcd"),
		"--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--log-level", "error"))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write("sa.key", string(pem.EncodeToMemory(
		&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
	)))
	c.write("tokens.csv", clusterToken+",admin,1,system:masters\n")
	c.start()
	c.post("/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}}`)
	return c
}

func (c *apiCluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *apiCluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.file(name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *apiCluster) url() string { return "https://127.0.0.1:" + c.port }

// start starts the API server, at the same port each time, and waits until it is ready.
func (c *apiCluster) start() {
	c.t.Helper()
	c.server = startCommand(c.t, "kube-apiserver", exec.Command(c.binary, "kube-apiserver",
		"--etcd-servers", c.etcd, "--bind-address", "127.0.0.1", "--secure-port", c.port, "--cert-dir", c.dir,
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.file("sa.key"), "--service-account-signing-key-file", c.file("sa.key"),
		"--token-auth-file", c.file("tokens.csv"),
		"--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--disable-admission-plugins", "ServiceAccount", "--endpoint-reconciler-type", "none", "-v", "0"))
	eventually(c.t, 3*time.Minute, func() error {
		roots, err := os.ReadFile(c.file("apiserver.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(roots)
		c.client = &http.Client{
			Timeout:   10 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		}
		code, _, said := c.ask(http.MethodGet, "/readyz", "", "")
		if code != http.StatusOK {
			return fmt.Errorf("status %d: %s", code, said)
		}
		return nil
	})
}

// ask sends a request as an administrator. Status 0 means no answer.
func (c *apiCluster) ask(method, path, content, body string) (code int, warnings []string, said string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+clusterToken)
	if content != "" {
		req.Header.Set("Content-Type", content)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return resp.StatusCode, resp.Header.Values("Warning"), string(text)
}

// must calls ask and fails the test on any other status than success.
func (c *apiCluster) must(method, path, content, body string) (warnings []string, said string) {
	c.t.Helper()
	code, warnings, said := c.ask(method, path, content, body)
	if code < 200 || code > 299 {
		c.t.Fatalf("%s %s: status %d: %s", method, path, code, said)
	}
	return warnings, said
}

func (c *apiCluster) post(path, body string) string {
	c.t.Helper()
	_, said := c.must(http.MethodPost, path, "application/json", body)
	return said
}

// manifest has the kind, the name and the namespace of an object.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
}

// path returns the path of an object on the API server.
func (m *manifest) path() string {
	group, many := "/apis/", strings.ToLower(m.Kind)+"s"
	if !strings.Contains(m.APIVersion, "/") {
		group = "/api/"
	}
	inside := ""
	if m.Metadata.Namespace != "" {
		inside = "/namespaces/" + m.Metadata.Namespace
	}
	if one, y := strings.CutSuffix(many, "ys"); y && !strings.HasSuffix(one, "wa") { // policies, but gateways
		many = one + "ies"
	}
	return group + m.APIVersion + inside + "/" + many + "/"
}

// apply applies the manifests of a file, except the kinds in without.
func (c *apiCluster) apply(file string, without ...string) (kinds []string) {
	c.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.applyAll(file, data, without...)
}

// applyAll applies manifests as kubectl apply --server-side does, except the kinds in without. A warning
// of the API server fails the test.
func (c *apiCluster) applyAll(from string, data []byte, without ...string) (kinds []string) {
	c.t.Helper()
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var is manifest
		if err := yaml.Unmarshal(doc, &is); err != nil {
			c.t.Fatalf("%s: %v", from, err)
		}
		if is.Kind == "" || slices.Contains(without, is.Kind) {
			continue
		}
		path := is.path() + is.Metadata.Name + "?fieldManager=test&fieldValidation=Strict"
		warnings, _ := c.must(http.MethodPatch, path, "application/apply-patch+yaml", string(doc))
		if len(warnings) > 0 {
			c.t.Errorf("%s: %s warns: %v", from, is.Kind, warnings)
		}
		kinds = append(kinds, is.Kind)
	}
	return kinds
}

// token returns a token of the service account tandem.
func (c *apiCluster) token() string {
	c.t.Helper()
	said := c.post("/api/v1/namespaces/llm/serviceaccounts/tandem/token",
		`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}`)
	var answer struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(said), &answer); err != nil || answer.Status.Token == "" {
		c.t.Fatalf("no token (%v) in %s", err, said)
	}
	return answer.Status.Token
}

const podPath = "/api/v1/namespaces/llm/pods/"

// create makes a pod as llm-d's guide does, with a sidecar at another port. Each pod has its own node.
func (c *apiCluster) create(name, role, revision, port string) {
	c.t.Helper()
	labels := fmt.Sprintf(`"llm-d.ai/role": %q`, role)
	if revision != "" {
		labels += fmt.Sprintf(`, "disaggregatedset.x-k8s.io/revision": %q`, revision)
	}
	c.post(strings.TrimSuffix(podPath, "/"), fmt.Sprintf(`{
		"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {%s}},
		"spec": {"nodeName": %q,
			"initContainers": [{"name": "routing-proxy", "image": "sidecar", "restartPolicy": "Always",
				"ports": [{"name": "sidecar", "containerPort": 1}]}],
			"containers": [{"name": "modelserver", "image": "vllm",
				"ports": [{"name": "modelserver", "containerPort": %s}]}]}}`,
		name, labels, "node-of-"+name, port))
}

// status writes the address and the readiness of a pod, instead of the kubelet.
func (c *apiCluster) status(name, ip, ready string) {
	c.t.Helper()
	c.must(http.MethodPatch, podPath+name+"/status", "application/strategic-merge-patch+json", fmt.Sprintf(
		`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %[1]q}],
			"conditions": [{"type": "Ready", "status": %q}]}}`, ip, ready))
}

// remove begins the deletion of a pod. Without a kubelet the deletion does not end.
func (c *apiCluster) remove(name string) {
	c.t.Helper()
	c.must(http.MethodDelete, podPath+name, "", "")
}

// removed completes the deletion.
func (c *apiCluster) removed(name string) {
	c.t.Helper()
	c.must(http.MethodDelete, podPath+name+"?gracePeriodSeconds=0", "", "")
}

// discovery is a section of the configuration that finds replicas with the service account of the manifests.
func (c *apiCluster) discovery() string {
	c.t.Helper()
	c.write("token", c.token())
	return fmt.Sprintf("discovery: {kubernetes: {preset: llm-d, namespace: llm, server: %q, ca: %q, "+
		"token_file: %q}}", c.url(), c.file("apiserver.crt"), c.file("token"))
}

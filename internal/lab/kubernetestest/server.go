// Package kubernetestest is an API server for tests. It speaks the list and watch protocol for pods, nodes
// and InferencePools on a real socket.
package kubernetestest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod in the form of the API, or a node, which has labels only, or an InferencePool.
type Pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   map[string]any `json:"spec,omitempty"`
	Status map[string]any `json:"status,omitempty"`
}

// Node is a node with labels.
func Node(name string, labels map[string]string) Pod {
	return Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
}

// InferencePool selects the pods with a label.
func InferencePool(name, label, value string, ports ...int) Pod {
	var targets []any
	for _, port := range ports {
		targets = append(targets, map[string]any{"number": port})
	}
	return Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "inference.networking.k8s.io/v1", Kind: "InferencePool"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "llm"},
		Spec: map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{label: value}}, "targetPorts": targets,
		},
	}
}

// Ready is a pod with an engine that serves at ip and port, behind a sidecar at another port. Its label role
// says which pool it belongs to.
func Ready(name, role, ip string, port int) Pod {
	containers := func(name string, port int) []any {
		return []any{map[string]any{"name": name, "ports": []any{map[string]any{"containerPort": port}}}}
	}
	return Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid of " + name), Labels: map[string]string{"role": role},
		},
		Spec: map[string]any{
			"nodeName": "node-of-" + name, "containers": containers("vllm", port),
			"initContainers": containers("proxy", 1),
		},
		Status: map[string]any{
			"phase": "Running", "podIP": ip, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		},
	}
}

// Deleting is p while its deletion goes on.
func (p Pod) Deleting() Pod {
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return p
}

// Server is the API server of the namespace llm and of nodes, which it forbids until [Server.AllowNodes]. It
// refuses a wrong token or path, and a watch from a version that it has forgotten. Safe for concurrent use.
type Server struct {
	URL  string
	Stop func() // ends all connections; the test's end calls it, too

	t    testing.TB
	mu   sync.Mutex    // guards the following
	news chan struct{} // closed and replaced when watches have something to do
	gone int           // watches from a forgotten version
	store
	behaviour
}

// store is the pods and nodes and their past.
type store struct {
	all     map[string]Pod // by kind and name
	version int
	events  []event // since the version forgot
	forgot  int
}

// behaviour is what the server does with requests.
type behaviour struct {
	ending   int // counts EndWatches
	token    string
	refusal  int            // status for every request; 0 none
	refused  map[string]int // the same for one kind
	behind   *Past          // that lists are answered from; nil for the present
	late     int            // such lists
	noStream bool           // does not know sendInitialEvents, as servers before 1.32
}

type podList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Pod `json:"items"`
}

type event struct {
	version int
	kind    string
	pod     Pod
}

// Start starts a server that takes the token "first". The test's end stops it.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, news: make(chan struct{})}
	s.store = store{all: map[string]Pod{}, version: 1}
	s.token, s.refused = "first", map[string]int{"Node": http.StatusForbidden}
	server := httptest.NewServer(s)
	s.URL = server.URL
	s.Stop = func() {
		s.EndWatches()
		server.Close()
	}
	t.Cleanup(s.Stop)
	return s
}

// Put adds or changes a pod or a node.
func (s *Server) Put(p Pod) {
	if p.Kind == "" {
		p.TypeMeta, p.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "llm"
	}
	s.change(func() {
		kind := "MODIFIED"
		if _, known := s.all[p.Kind+p.Name]; !known {
			kind = "ADDED"
		}
		s.noteLocked(kind, p)
	})
}

// Remove takes a pod out.
func (s *Server) Remove(name string) { s.change(func() { s.noteLocked("DELETED", s.all["Pod"+name]) }) }

// RemoveNode takes a node out.
func (s *Server) RemoveNode(name string) {
	s.change(func() { s.noteLocked("DELETED", s.all["Node"+name]) })
}

// RemoveInferencePool takes an InferencePool out.
func (s *Server) RemoveInferencePool(name string) {
	s.change(func() { s.noteLocked("DELETED", s.all["InferencePool"+name]) })
}

func (s *Server) noteLocked(kind string, p Pod) {
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.all[p.Kind+p.Name] = p
	if kind == "DELETED" {
		delete(s.all, p.Kind+p.Name)
	}
	s.events = append(s.events, event{s.version, kind, p})
}

// PutLate sends an older state of a pod, as an API server does that is behind the others.
func (s *Server) PutLate(p Pod) {
	s.change(func() {
		now := s.all["Pod"+p.Name]
		p.TypeMeta, p.Namespace = now.TypeMeta, now.Namespace
		p.ResourceVersion = "1"
		s.version++
		s.events = append(s.events, event{s.version, "MODIFIED", p})
	})
}

// AllowNodes allows to read nodes, or forbids to read nodes again.
func (s *Server) AllowNodes(yes bool) {
	status := http.StatusForbidden
	if yes {
		status = 0
	}
	s.change(func() { s.refused["Node"], s.ending = status, s.ending+1 })
}

// RefuseInferencePools answers every request for InferencePools with a status; 0 answers again.
func (s *Server) RefuseInferencePools(status int) {
	s.change(func() { s.refused["InferencePool"], s.ending = status, s.ending+1 })
}

// change does something under the lock, and wakes the watches.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.news)
	s.news = make(chan struct{})
}

// EndWatches ends the watches that are open, as the API server does after some minutes.
func (s *Server) EndWatches() { s.change(func() { s.ending++ }) }

// Forget ends the watches, and forgets what was before.
func (s *Server) Forget() {
	s.change(func() {
		s.version++
		s.events, s.forgot = nil, s.version
		s.ending++
	})
}

// Cut is a status for [Server.Refuse]: connections end without an answer, as behind a load balancer.
const Cut = -1

// Refuse ends the watches and answers every request with a status; 0 answers again.
func (s *Server) Refuse(status int) { s.change(func() { s.refusal, s.ending = status, s.ending+1 }) }

// Token ends the watches and takes another token from now on.
func (s *Server) Token(text string) { s.change(func() { s.token, s.ending = text, s.ending+1 }) }

// NoStream makes the server one that does not know sendInitialEvents, as servers before Kubernetes 1.32.
func (s *Server) NoStream() { s.change(func() { s.noStream = true }) }

// Gone counts the watches that were refused with 410 Gone.
func (s *Server) Gone() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	kind := map[string]string{
		"/api/v1/namespaces/llm/pods": "Pod", "/api/v1/nodes": "Node",
		"/apis/inference.networking.k8s.io/v1/namespaces/llm/inferencepools": "InferencePool",
	}[r.URL.Path]
	named, _ := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	what := selection{kind, named, selector}
	s.mu.Lock()
	refusal, token := s.refusal, s.token
	refused := s.refused[kind]
	s.mu.Unlock()
	switch {
	case refusal == Cut:
		panic(http.ErrAbortHandler)
	case refusal != 0:
		status(w, refusal, "Forbidden")
	case r.Header.Get("Authorization") != "Bearer "+token:
		status(w, http.StatusUnauthorized, "Unauthorized")
	case r.Method != http.MethodGet || kind == "" || err != nil:
		status(w, http.StatusNotFound, "NotFound")
	case refused != 0:
		status(w, refused, map[int]string{
			http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound",
		}[refused])
	case q.Get("watch") != "":
		s.watch(w, r, what)
	default:
		s.list(w, what)
	}
}

// selection is the objects that a request asks for.
type selection struct {
	kind, name string // name "" for all
	labels     labels.Selector
}

func (of *selection) has(p Pod) bool {
	return p.Kind == of.kind && (of.name == "" || p.Name == of.name) && of.labels.Matches(labels.Set(p.Labels))
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code),
		Reason: metav1.StatusReason(reason), Message: reason,
	})
}

func (s *Server) list(w http.ResponseWriter, of selection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := podList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: of.kind + "List"}}
	if of.kind == "InferencePool" {
		l.APIVersion = "inference.networking.k8s.io/v1"
	}
	all, version := s.stateLocked()
	l.ResourceVersion = strconv.Itoa(version)
	for _, p := range all {
		if of.has(p) {
			l.Items = append(l.Items, p)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l)
}

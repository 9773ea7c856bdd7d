// Package kubernetestest is an API server for tests. It speaks the list and watch protocol for pods and nodes
// on a real socket.
package kubernetestest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod in the form of the API, or a node, which has labels only.
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
	refusal  int  // status for every request; 0 none
	nodes    bool // allowed to be read
	noStream bool // does not know sendInitialEvents, as servers before 1.32
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
	s.token = "first"
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
func (s *Server) AllowNodes(yes bool) { s.change(func() { s.nodes, s.ending = yes, s.ending+1 }) }

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
	s.mu.Lock()
	refusal, token := s.refusal, s.token
	nodes := s.nodes
	s.mu.Unlock()
	kind := map[string]string{"/api/v1/namespaces/llm/pods": "Pod", "/api/v1/nodes": "Node"}[r.URL.Path]
	switch {
	case refusal != 0:
		status(w, refusal, "Forbidden")
	case r.Header.Get("Authorization") != "Bearer "+token:
		status(w, http.StatusUnauthorized, "Unauthorized")
	case r.Method != http.MethodGet || kind == "" || err != nil:
		status(w, http.StatusNotFound, "NotFound")
	case kind == "Node" && !nodes:
		status(w, http.StatusForbidden, "Forbidden")
	case q.Get("watch") != "":
		s.watch(w, r, kind, selector)
	default:
		s.list(w, kind, selector)
	}
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code),
		Reason: metav1.StatusReason(reason), Message: reason,
	})
}

func (s *Server) list(w http.ResponseWriter, kind string, selector labels.Selector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := podList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind + "List"}}
	l.ResourceVersion = strconv.Itoa(s.version)
	for _, p := range s.all {
		if p.Kind == kind && selector.Matches(labels.Set(p.Labels)) {
			l.Items = append(l.Items, p)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l)
}

// watch sends events until it is to end.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, kind string, selector labels.Selector) {
	q := r.URL.Query()
	initial := q.Get("sendInitialEvents") == "true"
	since, err := strconv.Atoi(q.Get("resourceVersion"))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case initial && s.noStream:
		status(w, http.StatusUnprocessableEntity, "Invalid")
		return
	case !initial && (err != nil || since < s.forgot):
		s.gone++
		status(w, http.StatusGone, "Expired")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	to := &stream{s: s, w: w, of: kind, selector: selector, since: since}
	if initial {
		to.startLocked()
	}
	for ending := s.ending; s.ending == ending; {
		to.eventsLocked()
		news := s.news
		s.mu.Unlock()
		select {
		case <-news:
		case <-r.Context().Done():
		}
		s.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

// stream is an open watch.
type stream struct {
	s        *Server
	w        http.ResponseWriter
	of       string // kind of the objects
	selector labels.Selector
	since    int // version of the newest event that was sent
}

func (to *stream) send(kind string, p Pod) {
	if p.Kind != to.of || !to.selector.Matches(labels.Set(p.Labels)) && kind != "BOOKMARK" {
		return
	}
	raw, err := json.Marshal(p)
	if err != nil {
		to.s.t.Error(err)
	}
	_ = json.NewEncoder(to.w).Encode(metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}})
}

// startLocked sends all objects, and a bookmark that says so.
func (to *stream) startLocked() {
	for _, p := range to.s.all {
		to.send("ADDED", p)
	}
	to.since = to.s.version
	mark := Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: to.of}}
	mark.ResourceVersion = strconv.Itoa(to.since)
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	to.send("BOOKMARK", mark)
}

// eventsLocked sends what has happened since the last call.
func (to *stream) eventsLocked() {
	after := func(e event, version int) int { return cmp.Compare(e.version, version+1) }
	first, _ := slices.BinarySearchFunc(to.s.events, to.since, after)
	for _, e := range to.s.events[first:] {
		to.send(e.kind, e.pod)
	}
	to.since = to.s.version
	_ = http.NewResponseController(to.w).Flush()
}

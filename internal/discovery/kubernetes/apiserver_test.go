package kubernetes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer speaks the list and watch protocol for the pods of the namespace llm, as the API server does. It
// refuses a request with a wrong token or a wrong path, and a watch from a version that it has forgotten.
type apiServer struct {
	t      *testing.T
	url    string
	server *httptest.Server

	mu       sync.Mutex // guards the following
	pods     map[string]apiPod
	version  int
	events   []event // since the version forgotten
	forgot   int
	closing  chan struct{} // closed when a pod has changed, and when watches are to end
	ending   int           // counts endWatches
	token    string
	refusal  int  // status for every request; 0 none
	noStream bool // does not know sendInitialEvents, as servers before 1.32

	lists, watches, gone int // requests
}

type event struct {
	version int
	kind    string
	pod     apiPod
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{t: t, pods: map[string]apiPod{}, version: 1, closing: make(chan struct{}), token: "first"}
	a.server = httptest.NewServer(a)
	a.url = a.server.URL
	t.Cleanup(func() {
		a.endWatches()
		a.server.Close()
	})
	return a
}

// put adds or changes a pod.
func (a *apiServer) put(p apiPod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := "MODIFIED"
	if _, known := a.pods[p.Name]; !known {
		kind = "ADDED"
	}
	a.noteLocked(kind, p)
}

// remove takes a pod out.
func (a *apiServer) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteLocked("DELETED", a.pods[name])
}

func (a *apiServer) noteLocked(kind string, p apiPod) {
	a.version++
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.Namespace, p.ResourceVersion = "llm", strconv.Itoa(a.version)
	a.pods[p.Name] = p
	if kind == "DELETED" {
		delete(a.pods, p.Name)
	}
	a.events = append(a.events, event{a.version, kind, p})
	close(a.closing)
	a.closing = make(chan struct{})
}

// change does something under the lock, and wakes the watches.
func (a *apiServer) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.closing)
	a.closing = make(chan struct{})
}

// endWatches ends the watches that are open, as the API server does after some minutes.
func (a *apiServer) endWatches() { a.change(func() { a.ending++ }) }

// forget ends the watches, and knows nothing of what was before.
func (a *apiServer) forget() {
	a.change(func() {
		a.version++
		a.events, a.forgot = nil, a.version
		a.ending++
	})
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	a.mu.Lock()
	refusal, token := a.refusal, a.token
	a.mu.Unlock()
	switch {
	case refusal != 0:
		status(w, refusal, "Forbidden")
	case r.Header.Get("Authorization") != "Bearer "+token:
		status(w, http.StatusUnauthorized, "Unauthorized")
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/llm/pods" || err != nil:
		status(w, http.StatusNotFound, "NotFound")
	case q.Get("watch") != "":
		a.watch(w, r, selector)
	default:
		a.list(w, selector)
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

func (a *apiServer) list(w http.ResponseWriter, selector labels.Selector) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	l := apiPodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	l.ResourceVersion = strconv.Itoa(a.version)
	for _, p := range a.pods {
		if selector.Matches(labels.Set(p.Labels)) {
			l.Items = append(l.Items, p)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l)
}

// watch sends events until it is to end. A selector makes a pod that has lost its labels a deleted one.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, selector labels.Selector) {
	q := r.URL.Query()
	a.mu.Lock()
	initial := q.Get("sendInitialEvents") == "true"
	if initial && a.noStream {
		a.mu.Unlock()
		status(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	a.watches++
	since, err := strconv.Atoi(q.Get("resourceVersion"))
	if !initial && (err != nil || since < a.forgot) {
		a.gone++
		a.mu.Unlock()
		status(w, http.StatusGone, "Expired")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	send := func(kind string, p apiPod) {
		raw, err := json.Marshal(p)
		if err != nil {
			a.t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}})
	}
	if initial {
		for _, p := range a.pods {
			if selector.Matches(labels.Set(p.Labels)) {
				send("ADDED", p)
			}
		}
		since = a.version
		mark := apiPod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		mark.ResourceVersion = strconv.Itoa(since)
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send("BOOKMARK", mark)
	}
	for ending := a.ending; a.ending == ending; {
		for _, e := range a.events {
			if e.version > since && selector.Matches(labels.Set(e.pod.Labels)) {
				send(e.kind, e.pod)
			}
		}
		since = a.version
		_ = http.NewResponseController(w).Flush()
		next := a.closing
		a.mu.Unlock()
		select {
		case <-next:
			a.mu.Lock()
		case <-r.Context().Done():
			return
		}
	}
	a.mu.Unlock()
}

// counts are the requests up to now.
func (a *apiServer) counts() (lists, watches, gone int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists, a.watches, a.gone
}

// ready is a pod that serves.
func ready(name, role, ip string) apiPod {
	p := apiPod{}
	p.Name, p.UID = name, types.UID("uid of "+name)
	p.Labels = map[string]string{"role": role}
	p.Spec.Containers = []apiContainer{{Name: "vllm"}}
	p.Spec.Containers[0].Ports = slices.Grow(p.Spec.Containers[0].Ports, 1)[:1]
	p.Spec.Containers[0].Ports[0].ContainerPort = 8000
	p.Status.Phase, p.Status.PodIP = "Running", ip
	p.Status.Conditions = []apiCondition{{"Ready", "True"}}
	return p
}

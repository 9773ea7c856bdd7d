package kubernetestest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// watch sends events until it is to end.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, of selection) {
	q := r.URL.Query()
	initial := q.Get("sendInitialEvents") == "true"
	since, err := strconv.Atoi(q.Get("resourceVersion"))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case initial && s.noStream:
		status(w, http.StatusUnprocessableEntity, "Invalid")
		return
	case s.continues(q), !initial && (err != nil || since < s.forgot):
		s.gone++
		status(w, http.StatusGone, "Expired")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	to := &stream{s: s, w: w, of: of, since: since}
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
	s     *Server
	w     http.ResponseWriter
	of    selection
	since int // version of the newest event that was sent
}

func (to *stream) send(kind string, p Pod) {
	if kind != "BOOKMARK" && !to.of.has(p) {
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
	all, version := to.s.stateLocked()
	for _, p := range all {
		to.send("ADDED", p)
	}
	to.since = version
	mark := Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: to.of.kind}}
	if to.of.kind == "InferencePool" {
		mark.APIVersion = "inference.networking.k8s.io/v1"
	}
	mark.ResourceVersion = strconv.Itoa(to.since)
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	to.send("BOOKMARK", mark)
}

// eventsLocked sends what has happened since the last call.
func (to *stream) eventsLocked() {
	after := func(e event, version int) int { return cmp.Compare(e.version, version+1) }
	if to.s.behind != nil {
		_ = http.NewResponseController(to.w).Flush()
		return
	}
	first, _ := slices.BinarySearchFunc(to.s.events, to.since, after)
	for _, e := range to.s.events[first:] {
		to.send(e.kind, e.pod)
	}
	to.since = to.s.version
	_ = http.NewResponseController(to.w).Flush()
}

package kubernetes

import (
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-router/tandem/internal/config"
)

// store takes in pods and nodes. The reflector of pods calls the methods of store, the reflector of nodes the
// methods of a [nodeStore].
type store struct {
	*watcher

	mu      sync.Mutex              // guards the following
	pods    map[string]*pod         // by name
	places  map[string]config.Place // by node: rack and zone
	unread  string                  // why nodes cannot be read; "" if nodes can be read
	members map[string]bool         // uids of the pods that are members
	last    []found                 // nil until the pods have been listed
}

// Add takes in a pod.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update takes in a changed pod. Most changes do not concern discovery, and cost nothing more.
func (s *store) Update(obj any) error {
	p, ok := obj.(*apiPod)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is, was := podOf(p), s.pods[p.Name]
	is.place = s.places[is.node]
	if was != nil {
		if is.before(was) {
			return nil
		}
		was.version = is.version
		if reflect.DeepEqual(is, was) {
			return nil
		}
	}
	s.pods[p.Name] = is
	s.tellLocked()
	return nil
}

// Delete takes out a pod.
func (s *store) Delete(obj any) error {
	if p, ok := obj.(*apiPod); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pods, p.Name)
		s.tellLocked()
	}
	return nil
}

// Replace takes in a whole list.
func (s *store) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.pods)
	for _, obj := range list {
		if p, ok := obj.(*apiPod); ok {
			s.pods[p.Name] = podOf(p)
		}
	}
	s.tellLocked()
	return nil
}

// Resync is for stores with events of their own.
func (s *store) Resync() error { return nil }

// tellLocked calls found if members have changed.
func (s *store) tellLocked() {
	pods := make([]*pod, 0, len(s.pods))
	for _, p := range s.pods {
		p.place = s.places[p.node]
		pods = append(pods, p)
	}
	var all []found
	all, s.members = s.spec.members(pods, s.members)
	if s.unread != "" && len(all) > 0 {
		all[0].left = append(all[0].left, s.unread)
	}
	if s.last == nil || !reflect.DeepEqual(all, s.last) {
		s.last = all
		s.watcher.found(all)
	}
}

// hearNodes takes in the result of a question for nodes. Only a missing right is told here: every other
// failure also fails the question for pods, which tells the failure.
func (s *store) hearNodes(err error) {
	why := ""
	switch {
	case apierrors.IsForbidden(err):
		why = fmt.Sprintf("the API server forbids to read nodes, so replicas have no rack and no zone: kubectl "+
			"apply --server-side -f deploy/kubernetes/nodes.yaml, or take place out of discovery.kubernetes: %v", err)
	case err != nil:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread != why {
		s.unread = why
		s.placesLocked()
	}
}

// placesLocked puts places in force, if pods are known already.
func (s *store) placesLocked() {
	if s.last != nil {
		s.tellLocked()
	}
}

// nodeStore takes in nodes. Most changes of nodes change no place.
type nodeStore struct{ of *store }

// Add takes in a node.
func (s *nodeStore) Add(obj any) error { return s.Update(obj) }

// Update takes in a changed node.
func (s *nodeStore) Update(obj any) error {
	n, ok := obj.(*apiNode)
	if !ok {
		return nil
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if place := s.of.spec.placeOf(n); s.of.places[n.Name] != place {
		s.of.places[n.Name] = place
		s.of.placesLocked()
	}
	return nil
}

// Delete takes out a node.
func (s *nodeStore) Delete(obj any) error {
	if n, ok := obj.(*apiNode); ok {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		delete(s.of.places, n.Name)
		s.of.placesLocked()
	}
	return nil
}

// Replace takes in a whole list.
func (s *nodeStore) Replace(list []any, _ string) error {
	places := map[string]config.Place{}
	for _, obj := range list {
		if n, ok := obj.(*apiNode); ok {
			places[n.Name] = s.of.spec.placeOf(n)
		}
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.places = places
	s.of.placesLocked()
	return nil
}

// Resync is for stores with events of their own.
func (s *nodeStore) Resync() error { return nil }

// placeOf is the place of a node by its labels.
func (s *spec) placeOf(n *apiNode) config.Place {
	return config.Place{Rack: n.Labels[s.place.Rack], Zone: n.Labels[s.place.Zone]}
}

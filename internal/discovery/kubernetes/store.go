package kubernetes

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-router/tandem/internal/config"
)

// store has the pods, and nodes and an InferencePool where the spec wants them. Reflectors fill its tables.
type store struct {
	*watcher

	mu      sync.Mutex // guards the following, and the tables
	pods    table[*pod]
	places  table[config.Place]
	pools   table[inferencePool]
	within  *spec // the spec inside of the InferencePool; nil until the InferencePool is known
	outages outages
	members map[string]bool // uids of the pods that are members
	last    []found         // nil before the first call of found
}

// outages are the reasons why something cannot be read; nil for what can be read.
type outages struct{ pods, pool, nodes error }

func newStore(w *watcher) *store {
	s := &store{watcher: w}
	s.pods = table[*pod]{of: s, read: s.readPodLocked, changed: s.tellLocked}
	s.places = table[config.Place]{of: s, read: w.spec.placeOf, changed: s.tellLocked}
	s.pools = table[inferencePool]{of: s, read: readInferencePool, changed: func() {
		s.hearLocked()
		s.tellLocked()
	}}
	if w.spec.inferencePool == "" {
		s.within = w.spec
	}
	return s
}

// tellLocked calls found if members have changed. Members are known when the pods have been listed, and the
// InferencePool is known. An InferencePool that is deleted counts until there is another one of its name.
func (s *store) tellLocked() {
	if p, ok := s.pools.all[s.spec.inferencePool]; ok {
		s.enterLocked(p.is)
	}
	if s.pods.all == nil || s.within == nil {
		return
	}
	pods := make([]*pod, 0, len(s.pods.all))
	for _, k := range s.pods.all {
		k.is.place = s.places.all[k.is.node].is
		pods = append(pods, k.is)
	}
	var all []found
	all, s.members = s.within.members(pods, s.members)
	if s.outages.nodes != nil && len(all) > 0 {
		all[0].left = append(all[0].left, s.outages.nodes.Error())
	}
	if s.last == nil || !reflect.DeepEqual(all, s.last) {
		s.last = all
		s.watcher.found(all)
	}
}

// enterLocked puts the present state of the InferencePool in force.
func (s *store) enterLocked(p inferencePool) {
	if s.within != nil && reflect.DeepEqual(*s.within.within, p) {
		return
	}
	s.within = s.spec.inside(p)
	s.within.former = map[string]bool{}
	for _, k := range s.pods.all {
		if s.members[k.is.uid] && !s.within.matches(k.is.labels) {
			s.within.former[k.is.uid] = true
		}
	}
}

// hearPods takes in the result of a question for pods.
func (s *store) hearPods(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outages.pods = s.outage(err, "pods", "tandem.yaml")
	s.hearLocked()
}

// hearPool takes in the result of a question for the InferencePool.
func (s *store) hearPool(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outages.pool = s.outage(err, "inferencepools", "epp.yaml"); apierrors.IsNotFound(err) {
		s.outages.pool = fmt.Errorf("the API server does not know InferencePools of %s/v1: install the "+
			"definitions of the Gateway API Inference Extension, or take inference_pool out of "+
			"discovery.kubernetes: %w", inferenceGroup, err)
	}
	s.hearLocked()
}

// hearLocked tells of the outages of pods and of the InferencePool.
func (s *store) hearLocked() {
	err := cmp.Or(s.outages.pods, s.outages.pool)
	if _, ok := s.pools.all[s.spec.inferencePool]; err == nil && s.pools.all != nil && !ok {
		err = fmt.Errorf("the namespace %s has no InferencePool %s: create it, or set "+
			"discovery.kubernetes.inference_pool to a name that kubectl get inferencepools shows", s.spec.namespace,
			s.spec.inferencePool)
	}
	s.heard(err)
}

// hearNodes takes in the result of a question for nodes. Only a missing right is told here: every other
// failure also fails the question for pods, which tells the failure.
func (s *store) hearNodes(err error) {
	switch {
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("the API server forbids to read nodes, so replicas have no rack and no zone: kubectl "+
			"apply --server-side -f deploy/kubernetes/nodes.yaml, or take place out of discovery.kubernetes: %w", err)
	case err != nil:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outages.nodes = err
	s.tellLocked()
}

// table keeps what is read of objects of one kind. A reflector calls its methods. Most changes of an object
// change nothing of what is read, and cost nothing more.
type table[V any] struct {
	of      *store
	read    func(*apiObject) V // called with the mutex of the store held
	changed func()             // called with the mutex of the store held
	all     map[string]kept[V] // by name; nil until the objects have been listed
}

// kept is what is kept of an object.
type kept[V any] struct {
	uid     types.UID
	version uint64 // grows with each change; 0 is unknown
	is      V
}

func (t *table[V]) readLocked(obj any) (name string, is kept[V]) {
	o, _ := obj.(*apiObject)
	version, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return o.Name, kept[V]{o.UID, version, t.read(o)}
}

// Add takes in an object.
func (t *table[V]) Add(obj any) error { return t.Update(obj) }

// Update takes in a changed object. It ignores an older state: one of several API servers may be behind.
func (t *table[V]) Update(obj any) error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	name, is := t.readLocked(obj)
	was, known := t.all[name]
	if known && is.uid == was.uid && is.version != 0 && is.version < was.version {
		return nil
	}
	if t.all[name] = is; !known || !reflect.DeepEqual(was.is, is.is) {
		t.changed()
	}
	return nil
}

// Delete takes out an object.
func (t *table[V]) Delete(obj any) error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	name, _ := t.readLocked(obj)
	delete(t.all, name)
	t.changed()
	return nil
}

// Replace takes in a whole list.
func (t *table[V]) Replace(list []any, _ string) error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.all = map[string]kept[V]{}
	for _, obj := range list {
		name, is := t.readLocked(obj)
		t.all[name] = is
	}
	t.changed()
	return nil
}

// Resync is for stores with events of their own.
func (t *table[V]) Resync() error { return nil }

// readPodLocked reads a pod, and the place of its node.
func (s *store) readPodLocked(o *apiObject) *pod {
	p := podOf(o)
	p.place = s.places.all[p.node].is
	return p
}

// placeOf is the place of a node by its labels.
func (s *spec) placeOf(n *apiObject) config.Place {
	return config.Place{Rack: n.Labels[s.place.Rack], Zone: n.Labels[s.place.Zone]}
}

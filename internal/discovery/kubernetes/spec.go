package kubernetes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-router/tandem/internal/config"
)

// spec says which pods are replicas of which pool. It is immutable.
type spec struct {
	namespace       string
	all             labels.Selector // pods of both pools
	inferencePool   string          // name of the InferencePool whose pods they are; "" for none
	within          *inferencePool  // what the InferencePool says; nil for nothing
	former          map[string]bool // uids of members that the InferencePool has left out by its newest change
	prefill, decode poolSpec
	revision        string // key of the label; "" for none
	slice           string // key of the label whose equal values stand close together; "" for none
	place           config.NodeLabels
	scheme          string
}

// poolSpec says which pods are replicas of a pool. A pool without selectors has none.
type poolSpec struct {
	any []labels.Selector // alternatives
	// Name or number of a port, or the name of its container; "" for the target ports, or else the first port.
	port    string
	targets []int         // ports of the InferencePool
	ranks   int           // engines of a pod; 0 is as the annotation says, or one for each target port, or 1
	events  config.Events // with * for the pod's address; not of a rank
}

// inferencePool is what an InferencePool says.
type inferencePool struct {
	selector labels.Selector
	ports    []int // at each of which a pod has an engine for gateways: rank r at ports[r]
}

// readInferencePool keeps of an InferencePool what discovery needs.
func readInferencePool(p *apiObject) inferencePool {
	is := inferencePool{selector: labels.SelectorFromSet(p.Spec.Selector.MatchLabels)}
	for _, at := range p.Spec.TargetPorts {
		is.ports = append(is.ports, at.Number)
	}
	return is
}

// inside returns s for the pods of p.
func (s *spec) inside(p inferencePool) *spec {
	narrow := *s
	narrow.within = &p
	narrow.prefill.targets, narrow.decode.targets = p.ports, p.ports
	return &narrow
}

// matches reports whether a pod with these labels can be a replica of either pool.
func (s *spec) matches(of labels.Set) bool {
	return s.all.Matches(of) && (s.within == nil || s.within.selector.Matches(of))
}

// matches reports whether a pod with these labels is a replica of the pool.
func (of *poolSpec) matches(pod labels.Set) bool {
	for _, s := range of.any {
		if s.Matches(pod) {
			return true
		}
	}
	return false
}

// preset describes a platform: selectors in the form of kubectl -l.
type preset struct {
	all             string
	prefill, decode []string // each an alternative
	port            string
	revision, slice string
}

const (
	// Only the leader of a group serves: the pod with index 0.
	leaders = "leaderworkerset.sigs.k8s.io/worker-index=0"

	setName     = "disaggregatedset.x-k8s.io/name"
	setRole     = "disaggregatedset.x-k8s.io/role"
	setRevision = "disaggregatedset.x-k8s.io/revision"
	setSlice    = "disaggregatedset.x-k8s.io/slice"

	// Roles of llm-d. A pod with encode alone prefills nothing and decodes nothing.
	llmdPrefill = "llm-d.ai/role in (prefill, prefill-decode, encode-prefill, encode-prefill-decode, both)"
	llmdDecode  = "llm-d.ai/role in (decode, prefill-decode, encode-prefill-decode, both)"
)

// presets are the labels in use, read in the manifests and sources of July to November 2026.
var presets = map[string]preset{
	// The guide's Deployments and its DisaggregatedSet. The decode pod has a sidecar at port 8000 in front of
	// the engine, which is the port with this name.
	config.PresetLLMD: {
		prefill: []string{llmdPrefill}, decode: []string{llmdDecode}, port: "modelserver",
		revision: setRevision, slice: setSlice,
	},
	// Ports have no names here. The engine's container is called main; a sidecar is an init container.
	config.PresetKServe: {
		all:     "app.kubernetes.io/part-of=llminferenceservice,kserve.io/component=workload",
		prefill: []string{llmdPrefill}, decode: []string{llmdDecode}, port: "main",
	},
	config.PresetLeaderWorkerSet: {all: leaders},
	config.PresetDisaggregatedSet: {
		all: leaders, prefill: []string{setRole + "=prefill"}, decode: []string{setRole + "=decode"},
		revision: setRevision, slice: setSlice,
	},
	config.PresetDynamo: {
		prefill: []string{
			"nvidia.com/dynamo-component-type=prefill", "nvidia.com/dynamo-sub-component-type=prefill",
		},
		decode: []string{
			"nvidia.com/dynamo-component-type=decode", "nvidia.com/dynamo-sub-component-type=decode",
		},
	},
	config.PresetProductionStack: {port: "container-port"},
}

// specOf makes the spec of k, which has been validated. A pod must match everything that k and its preset
// say. namespace is used if k names none.
func specOf(k *config.Kubernetes, namespace string) (*spec, error) {
	known := presets[k.Preset]
	s := &spec{
		namespace: namespace, revision: known.revision, slice: known.slice, place: k.Place, scheme: "http",
		inferencePool: k.InferencePool,
	}
	if k.Namespace != "" {
		s.namespace = k.Namespace
	}
	if k.Revision != "" {
		s.revision = k.Revision
	}
	if k.HTTPS {
		s.scheme = "https"
	}
	var err error
	if s.all, err = both(known.all, k.Selector); err != nil {
		return nil, err
	}
	if s.prefill, err = poolOf(k.Prefill, known.prefill, known.port); err != nil {
		return nil, err
	}
	s.decode, err = poolOf(k.Decode, known.decode, known.port)
	return s, err
}

func poolOf(p config.Pods, roles []string, port string) (poolSpec, error) {
	of := poolSpec{port: port, ranks: p.Ranks, events: p.Events}
	if p.Port != "" {
		of.port = string(p.Port)
	}
	if len(roles) == 0 && p.Selector != "" {
		roles = []string{""}
	}
	for _, role := range roles {
		s, err := both(role, p.Selector)
		if err != nil {
			return of, err
		}
		of.any = append(of.any, s)
	}
	return of, nil
}

// both is the selector of what a and b select.
func both(a, b string) (labels.Selector, error) {
	one, err := labels.Parse(a)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", a, err)
	}
	other, err := labels.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", b, err)
	}
	more, _ := other.Requirements()
	return one.Add(more...), nil
}

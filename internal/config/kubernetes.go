package config

// Kubernetes finds replicas among the pods of one namespace. It is off without a preset and without a
// selector of a pool.
type Kubernetes struct {
	Preset    string `yaml:"preset"`    // the labels of a known platform: see [Presets]; "" for own labels
	Namespace string `yaml:"namespace"` // "" is the namespace of the router's own pod
	Selector  string `yaml:"selector"`  // label selector, which the pods of both pools match
	// Name of an InferencePool, whose selector the pods of both pools match; "" for none.
	InferencePool string `yaml:"inference_pool"`
	Prefill       Pods   `yaml:"prefill"`
	Decode        Pods   `yaml:"decode"`
	Revision      string `yaml:"revision"` // key of the label with the revision: only equal revisions pair
	HTTPS         bool   `yaml:"https"`    // the engines speak TLS

	Place NodeLabels `yaml:"place"` // where the engines stand, besides their nodes

	Server    string `yaml:"server"`     // URL of the API server; "" is the cluster that the router runs in
	TokenFile string `yaml:"token_file"` // bearer token for Server, read again when it changes
	CA        string `yaml:"ca"`         // PEM file with the roots for Server's certificate
}

// NodeLabels are keys of labels of nodes, whose values are the place of the pods there. With such a
// key the router reads nodes, which takes a ClusterRole.
type NodeLabels struct {
	Rack string `yaml:"rack"`
	Zone string `yaml:"zone"`
}

// Pods says which pods are the replicas of a pool, and which of their ports is the engine's.
type Pods struct {
	Selector string `yaml:"selector"` // label selector
	// Name or number of a port, or the name of the container with the port; "" is the preset's port, or else
	// the first port of the first container.
	Port NamedPort `yaml:"port"`
	// Engines of a pod, at Port and the ports behind it: data-parallel ranks with a port each. 0 is as many as
	// the pod's annotation says, or 1.
	Ranks  int    `yaml:"ranks"`
	Events Events `yaml:"events"` // with * for the pod's address; rank r is at port+r
}

// MostRanks is the most engines that a pod can have.
const MostRanks = 64

// Enabled reports whether the configuration looks for pods.
func (k *Kubernetes) Enabled() bool {
	return k.Preset != "" || k.Prefill.Selector != "" || k.Decode.Selector != ""
}

// What [Kubernetes.Preset] may be.
const (
	PresetLLMD             = "llm-d"
	PresetKServe           = "kserve"
	PresetLeaderWorkerSet  = "leaderworkerset"
	PresetDisaggregatedSet = "disaggregatedset"
	PresetDynamo           = "dynamo"
	PresetProductionStack  = "production-stack"
)

// Presets lists what [Kubernetes.Preset] may be, "" for none included.
func Presets() []string {
	return []string{
		"", PresetLLMD, PresetKServe, PresetLeaderWorkerSet, PresetDisaggregatedSet, PresetDynamo,
		PresetProductionStack,
	}
}

package kubernetes

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-router/tandem/internal/config"
)

// apiObject is a pod, a node or an InferencePool of the Gateway API Inference Extension, in the form of the
// API with the fields that discovery needs.
type apiObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		// Of a pod.
		NodeName       string         `json:"nodeName"`
		Containers     []apiContainer `json:"containers"`
		InitContainers []apiContainer `json:"initContainers"`

		// Of an InferencePool.
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int `json:"number"`
		} `json:"targetPorts"`
	} `json:"spec"`
	Status struct { // of a pod
		Phase      string         `json:"phase"`
		PodIP      string         `json:"podIP"`
		Conditions []apiCondition `json:"conditions"`
	} `json:"status"`
}

type apiContainer struct {
	Name  string `json:"name"`
	Ports []struct {
		Name          string `json:"name"`
		ContainerPort int32  `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
}

type apiCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// apiList is a list of objects in the form of the API.
type apiList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []apiObject `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (l *apiList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// DeepCopyObject implements [runtime.Object]. Nothing writes into an object, so copies share what it has.
func (o *apiObject) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// pod is what is kept of a pod.
//
// Long: a field for each thing that the API server tells.
type pod struct {
	name, uid, ip, node string
	created             time.Time
	labels              labels.Set
	place               config.Place // rack and zone of the node, where they are asked for
	ports               []port       // in the order of the manifest, sidecars last
	ready               bool
	deleting            bool    // its deletion has begun
	ended               bool    // its containers have ended for good
	active              *string // the annotation with the ports of its ranks; nil for none
}

// port is a port that a container declares.
type port struct {
	name, container string
	number          int32
	sidecar         bool // of an init container that runs on
}

// podOf keeps of a pod what discovery needs.
func podOf(p *apiObject) *pod {
	is := &pod{
		name: p.Name, uid: string(p.UID), ip: p.Status.PodIP, node: p.Spec.NodeName,
		created:  p.CreationTimestamp.Time,
		labels:   p.Labels,
		deleting: p.DeletionTimestamp != nil,
		ended:    p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed",
		ready:    slices.Contains(p.Status.Conditions, apiCondition{"Ready", "True"}),
	}
	add := func(containers []apiContainer, sidecar bool) {
		for _, c := range containers {
			for _, at := range c.Ports {
				if at.Protocol == "TCP" || at.Protocol == "" {
					is.ports = append(is.ports, port{at.Name, c.Name, at.ContainerPort, sidecar})
				}
			}
		}
	}
	add(p.Spec.Containers, false)
	add(p.Spec.InitContainers, true)
	for _, key := range []string{formerActivePorts, activePorts} {
		if text, ok := p.Annotations[key]; ok {
			is.active = &text
		}
	}
	return is
}

package config

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// check wants selectors that the API server takes, and pods for at least one pool.
func (k *Kubernetes) check(ck *checker) {
	const field = "discovery.kubernetes"
	if *k == (Kubernetes{}) {
		return
	}
	ck.oneOf(field+".preset", k.Preset, Presets()...)
	ck.selector(field+".selector", k.Selector)
	k.Prefill.check(ck, field+".prefill")
	k.Decode.check(ck, field+".decode")
	if why := validation.IsDNS1123Label(k.Namespace); k.Namespace != "" && len(why) > 0 {
		ck.add(field+".namespace", fmt.Sprintf("%q is not a namespace", k.Namespace), "write its name")
	}
	if why := validation.IsDNS1123Subdomain(k.InferencePool); k.InferencePool != "" && len(why) > 0 {
		ck.add(field+".inference_pool", fmt.Sprintf("%q is not the name of an InferencePool", k.InferencePool),
			"write a name that kubectl get inferencepools shows")
	}
	ck.labelKey(field+".revision", k.Revision, "example.com/revision")
	ck.labelKey(field+".place.rack", k.Place.Rack, "topology.kubernetes.io/rack")
	ck.labelKey(field+".place.zone", k.Place.Zone, "topology.kubernetes.io/zone")
	switch k.Preset {
	case "", PresetLeaderWorkerSet, PresetProductionStack:
		if k.Prefill.Selector == "" && k.Decode.Selector == "" {
			ck.add(field, "does not say which pods belong to which pool",
				"set prefill.selector and decode.selector, or a preset that names the roles, such as llm-d")
		}
	case PresetDynamo:
		if k.Prefill.Port == "" || k.Decode.Port == "" {
			ck.add(field, "does not say at which port the engines speak HTTP",
				"set prefill.port and decode.port: Dynamo's pods declare no such port")
		}
	}
	k.checkServer(ck, field)
}

// labelKey wants the key of a label, or nothing.
func (ck *checker) labelKey(field, key, example string) {
	if why := validation.IsQualifiedName(key); key != "" && len(why) > 0 {
		ck.add(field, fmt.Sprintf("%q is not the key of a label", key),
			"write the key of the label, such as "+example)
	}
}

// checkServer wants an address with its credentials, or neither.
func (k *Kubernetes) checkServer(ck *checker, field string) {
	if k.Server != "" {
		ck.url(field+".server", k.Server, "use token_file", "write the API server's own address or name")
		return
	}
	for _, f := range []struct{ name, value string }{{"token_file", k.TokenFile}, {"ca", k.CA}} {
		if f.value != "" {
			ck.add(field+"."+f.name, "is set without server",
				"set server, or leave it out: in a cluster the pod's service account is used")
		}
	}
}

func (p *Pods) check(ck *checker, field string) {
	ck.selector(field+".selector", p.Selector)
	ck.between(field+".ranks", p.Ranks, 0, MostRanks)
	p.Events.checkMany(ck, field)
	p.Events.At("host").check(ck, field)
	port := string(p.Port)
	if n, err := strconv.Atoi(port); err == nil {
		ck.between(field+".port", n, 1, 65535)
	} else if why := validation.IsDNS1123Label(port); port != "" && len(why) > 0 {
		ck.add(field+".port", fmt.Sprintf("%q is not a port", port),
			"write the number or the name of a port, or the name of its container")
	}
}

func (ck *checker) selector(field, text string) {
	if _, err := labels.Parse(text); err != nil || strings.TrimSpace(text) != text {
		ck.add(field, fmt.Sprintf("%q is not a label selector", text),
			`write it as for kubectl -l, such as "app=vllm,role in (prefill)"`)
	}
}

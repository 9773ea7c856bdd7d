package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// check checks a pool. asked is what discovery asks for it.
func (p *Pool) check(ck *checker, field string, asked []Replica) {
	for i, r := range p.Replicas {
		r.check(ck, fmt.Sprintf("%s.replicas[%d]", field, i))
	}
	ck.secret(field+".api_key", p.APIKey, false)
	p.checkTLS(ck, field, slices.Concat(p.Replicas, asked))
	ck.oneOf(field+".index", p.Index, IndexEvents, IndexApproximate, IndexOff)
	ck.between(field+".block_size", p.BlockSize, 0, 65536)
	ck.between(field+".blocks", p.Blocks, 0, math.MaxInt32)
	ck.between(field+".speculative_tokens", p.SpeculativeTokens, 0, 64)
	for i, folder := range p.AdapterFolders {
		if strings.Trim(folder, "/") == "" {
			ck.add(fmt.Sprintf("%s.adapter_folders[%d]", field, i), "is no folder of adapters",
				`write the path that adapters lie under, such as "/mnt/adapters"`)
		}
	}
	ck.longer(field+".poll_interval", p.PollInterval, 50*time.Millisecond)
	ck.size(field+".index_bytes", p.IndexBytes, 1<<20)
}

func (p *Pool) checkTLS(ck *checker, field string, replicas []Replica) {
	ck.pair(field+".tls", p.TLS.Cert, p.TLS.Key)
	if p.TLS.InsecureSkipVerify && p.TLS.CA != "" {
		ck.add(field+".tls.insecure_skip_verify", "believes any certificate, so ca decides nothing",
			"keep one of the two")
	}
	https := func(r Replica) bool { return strings.HasPrefix(r.URL, "https://") }
	if p.TLS != (ClientTLS{}) && len(replicas) > 0 && !slices.ContainsFunc(replicas, https) {
		ck.add(field+".tls", "is set and no replica has an https URL",
			"write https:// in the URLs or leave tls out")
	}
}

func (r Replica) check(ck *checker, field string) {
	ck.url(field+".url", r.URL, "use api_key of the pool", "write the engine's own address or name")
	if strings.ContainsFunc(
		r.Name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",{}/\`, c) },
	) || len(r.Name) > 128 {
		ck.add(field+".name", fmt.Sprintf("%q is not a name", r.Name),
			`use letters, digits, ".", "-", "_" and ":", at most 128`)
	}
	if r.Model != "" {
		checkModel(ck, field+".model", r.Model)
	}
	ck.between(field+".gateway_port", r.GatewayPort, 0, 65535)
	ck.between(field+".p2p_port", r.PullPort, 0, 65535)
	ck.between(field+".bootstrap_port", r.BootstrapPort, 0, 65535)
	r.Events.check(ck, field)
}

// check checks where block events come from.
func (e Events) check(ck *checker, field string) {
	if strings.HasPrefix(e.Endpoint, "/") {
		ck.add(field+".events.endpoint",
			fmt.Sprintf("%q is a path: KV events over HTTP were removed", e.Endpoint),
			"write the ZMQ address tcp://host:port, or set index: approximate for this pool")
	} else {
		ck.zmq(field+".events.endpoint", e.Endpoint)
	}
	ck.zmq(field+".events.replay", e.Replay)
	if e.Endpoint == "" && (e.Replay != "" || e.Topic != "") {
		ck.add(field+".events", "has no endpoint", "set endpoint too, or leave events out to ask the engine")
	}
	if e.Replay != "" && e.Replay == e.Endpoint {
		ck.add(field+".events.replay", "is the endpoint of the live events",
			"replay is a second port of the engine")
	}
}

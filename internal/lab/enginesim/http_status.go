package enginesim

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/rawjson"
)

// models answers GET /v1/models: the base model under its names, then the adapters.
func (s *Server) models(k *call) {
	b := append(k.part[:0], `{"object":"list","data":[`...)
	for i, name := range s.served() {
		b = s.appendModel(comma(b, i), name)
	}
	k.part = append(b, "]}"...)
	k.respond(200, jsonType, k.part)
}

func (s *Server) appendModel(dst []byte, name string) []byte {
	created := int(s.process.started().Unix())
	adapter := s.adapter(name)
	dst = rawjson.AppendString(append(dst, `{"id":`...), name)
	dst = appendInt(append(dst, `,"object":"model","created":`...), created)
	dst = append(dst, `,"owned_by":"vllm","root":`...)
	if adapter.name != "" {
		dst = rawjson.AppendString(append(rawjson.AppendString(dst, adapter.path), `,"parent":`...), s.o.Model)
		dst = append(dst, `,"max_model_len":null`...)
	} else {
		dst = append(rawjson.AppendString(dst, "/models/"+s.o.Model), `,"parent":null,"max_model_len":`...)
		dst = appendInt(dst, s.cores.ranks[0].cfg.MaxModelLen)
	}
	dst = append(appendHex(append(dst, `,"permission":[{"id":"modelperm-`...), randomWord(), 16),
		`","object":"model_permission","created":`...)
	return append(appendInt(dst, created),
		`,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,`+
			`"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`...)
}

func (s *Server) version(k *call) {
	k.part = append(rawjson.AppendString(append(k.part[:0], `{"version":`...), s.o.Version), '}')
	k.respond(200, jsonType, k.part)
}

// health answers /health and /ping with 200 and no body.
func (s *Server) health(k *call) { k.respond(200, "", nil) }

// load answers the number of requests in flight, if the server tracks them.
func (s *Server) load(k *call) {
	n := 0
	if s.o.ServerLoad {
		n = int(s.calls.busy.Load()) - 1
	}
	k.part = append(appendInt(append(k.part[:0], `{"server_load":`...), n), '}')
	k.respond(200, jsonType, k.part)
}

// eventSources answers GET /kv_event_sources, which exists in 0.32 but not in 0.20.
func (s *Server) eventSources(k *call) {
	b := append(k.part[:0], '{')
	for i := range s.cores.ranks {
		pub, replay := s.Endpoints(i)
		if pub == "" {
			continue
		}
		b = append(appendInt(append(comma(b, i), '"'), i), `":{"enable_kv_cache_events":true,"publisher":`...)
		b = append(rawjson.AppendString(b, s.o.Wrong.publisher()), `,"endpoint":`...)
		b = append(rawjson.AppendString(b, pub), `,"replay_endpoint":`...)
		b = append(appendNullable(b, cmp.Or(s.o.Wrong.TellReplay, replay)), `,"buffer_steps":`...)
		b = append(appendInt(b, s.o.Wrong.bufferSteps()), `,"hwm":100000,"max_queue_size":100000,"topic":`...)
		b = append(rawjson.AppendString(b, s.o.Topic), '}')
	}
	k.part = append(b, '}')
	k.respond(200, jsonType, k.part)
}

// resetPrefixCache answers an admin path. From 0.30 on, the answer has the result; older versions answer
// nothing.
func (s *Server) resetPrefixCache(k *call) {
	ok := s.ResetPrefixCache()
	if !s.process.versionAtLeast(30) {
		k.respond(200, "", nil)
		return
	}
	k.part = append(strconv.AppendBool(append(k.part[:0], `{"success":`...), ok), '}')
	k.respond(200, jsonType, k.part)
}

// ResetPrefixCache resets the cache like the admin path, without counting a call.
func (s *Server) ResetPrefixCache() bool {
	ok := true
	s.eachRank(func(r *rank) {
		r.mu.Lock()
		defer r.mu.Unlock()
		ok = r.core.ResetPrefixCache() && ok
		r.poke()
	})
	return ok
}

func (s *Server) serverInfo(k *call) { k.respond(200, jsonType, []byte(`{"vllm_config":"simulated"}`)) }

// adminDone answers an admin path that has no effect here.
func (s *Server) adminDone(k *call) { k.respond(200, "", nil) }

// abortRequests aborts running requests by their external ids. It does not touch finished ones with a lease.
func (s *Server) abortRequests(k *call) {
	sc := scan(k.body)
	var ids []string
	sc.object(func(key []byte) {
		if string(key) == "request_ids" {
			sc.array(func() { ids = append(ids, string(sc.str())) })
			return
		}
		sc.Skip()
	})
	s.eachRank(func(r *rank) { r.abortExternal(ids) })
	k.respond(200, "", nil)
}

func (r *rank) abortExternal(ids []string) {
	r.mu.Lock()
	var found []string
	for internal := range r.sinks {
		for _, id := range ids {
			if strings.HasPrefix(internal, id) {
				found = append(found, internal)
			}
		}
	}
	r.mu.Unlock()
	for _, id := range found {
		r.abort(id)
	}
}

// respondORCA answers with the load header that the request asked for.
func (s *Server) respondORCA(k *call, body []byte) {
	value := s.orca(k.head.orca)
	if value == "" {
		k.respond(200, jsonType, body)
		return
	}
	k.respondWith(200, jsonType, body, "endpoint-load-metrics", value)
}

// orca returns the header's value in the given format, "" for none. With several ranks, TEXT repeats each
// name without the rank, and JSON keeps the last rank's values.
func (s *Server) orca(format string) string {
	if format == "" || s.o.NoORCA || s.faults.orca.Load() || !s.process.versionAtLeast(12) {
		return ""
	}
	switch strings.ToUpper(format) {
	case "TEXT":
		b := []byte("TEXT ")
		for _, st := range s.Stats() {
			b = append(appendFloat(append(b, "named_metrics.num_requests_waiting="...), float64(st.Waiting)), ", "...)
		}
		for i, st := range s.Stats() {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendFloat(append(b, "named_metrics.kv_cache_usage_perc="...), st.Usage)
		}
		return string(b)
	case "JSON":
		all := s.Stats()
		st := all[len(all)-1]
		b := appendFloat([]byte(`JSON {"named_metrics": {"num_requests_waiting": `), float64(st.Waiting))
		return string(append(appendFloat(append(b, `, "kv_cache_usage_perc": `...), st.Usage), "}}"...))
	}
	return ""
}

// fingerprints reports whether answers have a fingerprint: 0.28.0 and 0.32.0 were seen to have it, 0.20.0
// not.
func (s *processStart) fingerprints() bool { return s.versionAtLeast(28) }

// appendFingerprint writes the value of system_fingerprint.
func (s *Server) appendFingerprint(dst []byte) []byte {
	if !s.process.fingerprints() {
		return append(dst, "null"...)
	}
	return append(append(append(dst, `"vllm-`...), s.o.Version...), `-c9323abc"`...)
}

// appendTransfer writes the params of a finished prefill in the version's form.
func (s *Server) appendTransfer(dst []byte, t *core.TransferOut) []byte {
	if s.process.versionAtLeast(21) {
		return s.o.Wrong.withMore(t.AppendJSON(dst))
	}
	dst = append(dst, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[`...)
	for i, id := range t.BlockIDs {
		dst = appendInt(comma(dst, i), int(id))
	}
	dst = rawjson.AppendString(append(dst, `]],"remote_engine_id":`...), t.EngineID)
	dst = rawjson.AppendString(append(dst, `,"remote_request_id":`...), t.RequestID)
	dst = rawjson.AppendString(append(dst, `,"remote_host":`...), t.Host)
	dst = appendInt(append(dst, `,"remote_port":`...), t.Port)
	return append(appendInt(append(dst, `,"tp_size":`...), t.TPSize), '}')
}

// scrapeDelay is the delay of /metrics by a fault.
func (s *Server) scrapeDelay() time.Duration { return time.Duration(s.faults.scrape.Load()) }

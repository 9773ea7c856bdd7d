package enginesim

import "slices"

// adapters are the LoRA adapters that are served now.
func (s *Server) adapters() []string { return *s.loaded.Load() }

// serves reports whether model is a served name; none is the base model.
func (s *Server) serves(model string) bool { return s.base(model) || s.adapter(model) != "" }

// base reports whether model names the base model.
func (s *Server) base(model string) bool {
	return model == "" || model == s.o.Model || slices.Contains(s.o.Aliases, model)
}

func (s *Server) adapter(model string) string {
	if slices.Contains(s.adapters(), model) {
		return model
	}
	return ""
}

// loadAdapter answers POST /v1/load_lora_adapter, which a vLLM has whose environment says
// VLLM_ALLOW_RUNTIME_LORA_UPDATING (entrypoints/openai/models/serving.py).
func (s *Server) loadAdapter(k *call) {
	s.changeAdapters(k, func(name, path string, inPlace bool) ([]string, *problem, string) {
		switch {
		case name == "" || path == "":
			return nil, adapterProblem(400, "Both 'lora_name' and 'lora_path' must be provided."), ""
		case s.base(name):
			return nil, adapterProblem(400, "The lora adapter '"+name+"' conflicts with a served base model."), ""
		case s.adapter(name) == "":
			return append(slices.Clone(s.adapters()), name), nil, "added"
		case !inPlace:
			return nil, adapterProblem(400, "The lora adapter '"+name+
				"' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True."), ""
		}
		return s.adapters(), nil, "added"
	})
}

// unloadAdapter answers POST /v1/unload_lora_adapter. The adapter's blocks stay until they are evicted, as in
// vLLM.
func (s *Server) unloadAdapter(k *call) {
	s.changeAdapters(k, func(name, _ string, _ bool) ([]string, *problem, string) {
		if s.adapter(name) == "" {
			return nil, adapterProblem(404, "The lora adapter '"+name+"' cannot be found."), ""
		}
		return slices.DeleteFunc(slices.Clone(s.adapters()), func(a string) bool { return a == name }), nil,
			"removed"
	})
}

// changeAdapters reads the body, makes the change, and answers in vLLM's words.
func (s *Server) changeAdapters(
	k *call, change func(name, path string, inPlace bool) (now []string, bad *problem, done string),
) {
	if !s.o.LoadAdapters {
		k.respond(404, jsonType, []byte(`{"detail":"Not Found"}`))
		return
	}
	var name, path string
	inPlace := false
	sc := scan(k.body)
	sc.object(func(key []byte) {
		switch string(key) {
		case "lora_name":
			name = string(sc.str())
		case "lora_path":
			path = string(sc.str())
		case "load_inplace":
			inPlace = sc.boolean()
		default:
			sc.Skip()
		}
	})
	if err := sc.end(); err != nil {
		k.failWith(badBody(k.body, err))
		return
	}
	s.mu.Lock()
	now, bad, done := change(name, path, inPlace)
	if bad == nil {
		s.loaded.Store(&now)
	}
	s.mu.Unlock()
	if bad != nil {
		k.failWith(bad)
		return
	}
	k.respond(200, "", []byte("Success: LoRA adapter '"+name+"' "+done+" successfully."))
}

func adapterProblem(status int, message string) *problem {
	kind := "InvalidUserInput"
	if status == 404 {
		kind = "NotFoundError"
	}
	return &problem{status: status, kind: kind, message: message}
}

package enginesim

import (
	"slices"
	"strings"
)

// adapter is a LoRA adapter. Its path decides what it computes.
type adapter struct{ name, path string }

// adapterOf reads "name" or "name=path".
func adapterOf(text string) adapter {
	name, path, told := strings.Cut(text, "=")
	if !told {
		path = "/adapters/" + name
	}
	return adapter{name, path}
}

// weights identifies the weights at the path, "" for the path that all engines use by default.
func (a adapter) weights() string {
	if a.path == "/adapters/"+a.name {
		return ""
	}
	return a.path
}

// adapters returns the adapters that are served now.
func (s *Server) adapters() []adapter { return *s.model.loaded.Load() }

// serves reports whether model is a served name. "" is the base model.
func (s *Server) serves(model string) bool { return s.base(model) || s.adapter(model).name != "" }

// base reports whether model names the base model.
func (s *Server) base(model string) bool {
	return model == "" || model == s.o.Model || slices.Contains(s.o.Aliases, model)
}

// adapter returns the adapter with this name, or the zero adapter.
func (s *Server) adapter(model string) adapter {
	for _, a := range s.adapters() {
		if a.name == model {
			return a
		}
	}
	return adapter{}
}

// swapAdapter loads the adapter with this name from another path.
func (s *Server) swapAdapter(name, path string) {
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	now := s.with(name, path)
	s.model.loaded.Store(&now)
}

// with returns the adapters with name loaded from path. It needs mu.
func (s *Server) with(name, path string) []adapter {
	now := slices.DeleteFunc(slices.Clone(s.adapters()), func(a adapter) bool { return a.name == name })
	return append(now, adapter{name, path})
}

// loadAdapter answers POST /v1/load_lora_adapter. vLLM has this path only with
// VLLM_ALLOW_RUNTIME_LORA_UPDATING (entrypoints/openai/models/serving.py).
func (s *Server) loadAdapter(k *call) {
	s.changeAdapters(k, func(name, path string, inPlace bool) ([]adapter, *problem, string) {
		switch {
		case name == "" || path == "":
			return nil, adapterProblem(400, "Both 'lora_name' and 'lora_path' must be provided."), ""
		case s.base(name):
			return nil, adapterProblem(400, "The lora adapter '"+name+"' conflicts with a served base model."), ""
		case s.adapter(name).name != "" && !inPlace:
			return nil, adapterProblem(400, "The lora adapter '"+name+
				"' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True."), ""
		}
		return s.with(name, path), nil, "added"
	})
}

// unloadAdapter answers POST /v1/unload_lora_adapter. As in vLLM, the adapter's blocks stay cached until
// eviction.
func (s *Server) unloadAdapter(k *call) {
	s.changeAdapters(k, func(name, _ string, _ bool) ([]adapter, *problem, string) {
		if s.adapter(name).name == "" {
			return nil, adapterProblem(404, "The lora adapter '"+name+"' cannot be found."), ""
		}
		return slices.DeleteFunc(slices.Clone(s.adapters()), func(a adapter) bool { return a.name == name }), nil,
			"removed"
	})
}

// changeAdapters reads the body, makes the change, and answers with vLLM's texts.
func (s *Server) changeAdapters(
	k *call, change func(name, path string, inPlace bool) (now []adapter, bad *problem, done string),
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
		k.failWith(badBody())
		return
	}
	s.listening.mu.Lock()
	now, bad, done := change(name, path, inPlace)
	if bad == nil {
		s.model.loaded.Store(&now)
	}
	s.listening.mu.Unlock()
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

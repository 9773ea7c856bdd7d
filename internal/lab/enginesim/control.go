package enginesim

import (
	"encoding/json"
	"io"
	"net/http"
)

// control serves POST /fault and GET /stats. It is a plain net/http handler: no benchmark measures it.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = json.Unmarshal(body, &f)
		}
		if err == nil {
			err = s.Fault(f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// The client may have disconnected.
		_ = json.NewEncoder(w).Encode(map[string]any{
			"ranks": s.Stats(), "calls": s.Calls(), "admin_calls": s.AdminCalls(), "held_blocks": s.HeldBlocks(),
		})
	})
	return mux
}

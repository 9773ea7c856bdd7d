package doctor

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// What vLLM refuses at the handshake is said where it can be the cause, and nowhere else.
func TestShapesThatCannotPair(t *testing.T) {
	plain := replica.Facts{Version: "0.33.0"}
	drafting := replica.Facts{Version: "0.33.0", Drafts: 3}
	older := replica.Facts{Version: "0.32.0", Drafts: 3}
	const params = `{"remote_host":"h","tp_size":8}`
	for name, tt := range map[string]struct {
		prefill, decode *replica.Facts
		params          string
		heads, rows     bool
	}{
		"drafts, several ranks":    {&drafting, &drafting, params, true, true},
		"drafts on decode alone":   {&plain, &drafting, params, true, true},
		"drafts, one rank":         {&drafting, &drafting, `{"tp_size":1}`, false, true},
		"drafts, size unknown":     {&drafting, &drafting, `null`, false, true},
		"no drafts":                {&plain, &plain, params, false, true},
		"before such shapes began": {&older, &older, params, false, false},
	} {
		got := refusedShapes(tt.prefill, tt.decode, tensorParallel([]byte(tt.params)))
		heads := strings.Contains(got, "the prefill engine's 8")
		rows := strings.Contains(got, "VLLM_KV_CACHE_LAYOUT")
		if heads != tt.heads || rows != tt.rows {
			t.Errorf("%s: %q; want heads %v, rows %v", name, got, tt.heads, tt.rows)
		}
	}
}

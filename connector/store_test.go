package connector

import (
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
)

// A store's legs are what they were, under the id of the attempt.
func TestStoreLegs(t *testing.T) {
	for _, name := range []string{"lmcache", "mooncake-store", "offloading"} {
		con := Named(name, Ports{})
		if traits := con.Traits(); traits.Order != Shared || traits.Late != Recomputes || traits.Returnable {
			t.Errorf("%s: %+v", name, traits)
		}
		leg, edit, header := newLeg(t, openai.Completions, completion)
		if err := con.EditPrefill(leg, pair); err != nil || header["X-Request-Id"] != "a1" {
			t.Errorf("%s: prefill: %v, headers %v", name, err, header)
		}
		leg.ReuseIDs = []byte("[7,8,9]")
		if err := con.EditDecode(leg, pair, nil, inTime); err != nil || header["X-Request-Id"] != "a1" {
			t.Errorf("%s: decode: %v, headers %v", name, err, header)
		}
		if got := string(edit.Append(nil)); got != completion {
			t.Errorf("%s: body %s, want %s", name, got, completion)
		}
	}
}

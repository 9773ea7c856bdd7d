package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/engine"
)

// Engines with the same root and version may have different templates. The difference shows only in the text
// of tools, or only on the chat path. An engine that does not answer is not counted as different.
func TestDriftOfTemplates(t *testing.T) {
	of := func(name string, tools, rendered []uint32) *server {
		s := &server{name: name, url: name}
		s.ranks = []*rank{{s: s}}
		s.seen.tokens = engine.TokenSample{
			Text: engine.IDs{IDs: []uint32{1, 2}}, Chat: engine.IDs{IDs: []uint32{3}},
			Tools: engine.IDs{IDs: tools}, Rendered: engine.IDs{IDs: rendered},
		}
		return s
	}
	a, b := []uint32{7, 8, 9}, []uint32{7, 9}
	for _, tt := range []struct {
		name    string
		servers []*server
		want    string
	}{
		{"alike", []*server{of("p0", a, b), of("d0", a, b)}, ""},
		{
			"tools",
			[]*server{of("p0", a, a), of("d0", b, a)},
			"the same chat with tools: ",
		},
		{
			"the chat path",
			[]*server{of("p0", a, a), of("d0", a, b)},
			"chat with tools, as it is rendered: ",
		},
		{"one has no render", []*server{of("p0", a, nil), of("d0", a, b)}, ""},
		{
			"two others differ",
			[]*server{of("p0", a, nil), of("d0", a, a), of("d1", a, b)},
			"d0 makes 3 and d1 makes 2",
		},
	} {
		got := sameTokens(&fleet{servers: tt.servers})
		if failed := got.status == Failed; failed != (tt.want != "") || !strings.Contains(got.seen, tt.want) {
			t.Errorf("%s: got %+v, want %q in what was seen", tt.name, got, tt.want)
		}
	}
	mute := of("d0", a, a)
	mute.seen.tokens.Text = engine.IDs{Err: errors.New("403")}
	if got := sameTokens(&fleet{servers: []*server{of("p0", a, a), mute}}); !strings.Contains(got.seen,
		"not all could be asked: d0: 403") {
		t.Errorf("got %+v, want the engine that did not answer", got)
	}
}

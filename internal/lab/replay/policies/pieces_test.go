package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Streams continue next to long prompts in pieces: each stream stops for one piece in one step, not for a
// whole prompt. All requests are served as before, and each piece finds the blocks of the piece before it.
func TestStreamsGoOnBesidePieces(t *testing.T) {
	var text strings.Builder
	text.WriteString(nameless)
	for i := range 20 {
		fmt.Fprintf(&text, `{"t":%g,"in":200,"out":600}`+"\n", 0.001*float64(i))
	}
	for i := range 6 {
		fmt.Fprintf(&text, `{"t":%g,"in":30000,"out":4}`+"\n", 0.5+0.3*float64(i))
	}
	c := fleet()
	c.Nodes[cluster.Prefill] = nil
	longest, computed := map[string]time.Duration{}, map[string]time.Duration{}
	for _, name := range []string{"tandem:piece=0", "tandem:piece=0.1", "oracle-pieces"} {
		r, err := New(name, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		res, pieces := played(t, name, c, r, text.String()), 0
		for _, x := range res.Records {
			if x.Refused || x.TTFT <= 0 || x.Cached != 0 {
				t.Errorf("%s: %+v", name, x)
			}
			if x.Output == 600 {
				longest[name] = max(longest[name], x.Gap)
			}
			pieces += x.Pieces
		}
		if (pieces > 30) != (name != "tandem:piece=0") {
			t.Errorf("%s: %d pieces", name, pieces)
		}
		tandem, ok := r.(*Tandem)
		if !ok {
			for j, line := range r.(*OracleInPieces).lines {
				if len(line.all()) > 0 {
					t.Errorf("%s: d%d has %d prompts at the end", name, j+1, len(line.all()))
				}
			}
			continue
		}
		for _, s := range tandem.decode.Status(cluster.Time(res.End)) {
			if s.Leases != 0 || s.Promised != 0 || s.Growth != 0 {
				t.Errorf("%s: a decode replica at the end: %+v", name, s)
			}
		}
		for _, busy := range res.Busy[cluster.Decode] {
			computed[name] += busy
		}
	}
	if whole, cut := computed["tandem:piece=0"], computed["tandem:piece=0.1"]; cut > whole*21/20 {
		t.Errorf("engines are busy for %v with pieces, and for %v without pieces", cut, whole)
	}
	if in := longest["oracle-pieces"]; in > 250*time.Millisecond {
		t.Errorf("the longest gap of a stream is %v next to an oracle's pieces", in)
	}
	if at, in := longest["tandem:piece=0"], longest["tandem:piece=0.1"]; at < 300*time.Millisecond || in > at/2 {
		t.Errorf("the longest gap of a stream is %v next to whole prompts, and %v next to pieces", at, in)
	}
}

package enginesim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// ofRanks starts an engine with this many tensor-parallel ranks.
func ofRanks(t *testing.T, ranks int, groups ...core.Group) *Server {
	return fastServer(t, core.Config{Blocks: 200, TensorParallel: ranks, KVHeads: 4, Groups: groups})
}

// splitOf sends d a request with the params of p, but with tp_size set to claimed, or removed if claimed is
// "". right reports whether the answer is 200 with the text of an engine that splits nothing.
func splitOf(t *testing.T, p, d *Server, seed uint64, claimed string) (status int, right bool) {
	t.Helper()
	ids := prompt(seed, 100)
	params := prefillLeg(t, p, ids)
	said := fmt.Sprintf(`"tp_size":%d,`, p.cores.ranks[0].cfg.TensorParallel)
	if !strings.Contains(params, said) {
		t.Fatalf("the params lack %s: %s", said, params)
	}
	if claimed != "" {
		claimed = `"tp_size":` + claimed + ","
	}
	params = strings.Replace(params, said, claimed, 1)
	status, got := post(t, d, "/v1/completions", completionBody(ids, 6, params))
	alone := fastServer(t, core.Config{Blocks: 200})
	_, want := post(t, alone, "/v1/completions", completionBody(ids, 6, "null"))
	return status, status == 200 && got.text() == want.text()
}

// If one number of ranks divides the other, the engines read exactly what one rank would read. Other pairs
// fail the handshake at once and every time, and no engine dies. Fewer ranks cannot read copies of a head,
// except with Mamba layers.
func TestRanksOfTwoEngines(t *testing.T) {
	mamba := []core.Group{{Kind: "mamba"}, {Kind: "full_attention"}}
	for _, c := range []struct {
		p, d   int
		groups []core.Group
		right  bool
	}{
		{1, 4, nil, true},
		{4, 1, nil, true},
		{4, 4, nil, true},
		{2, 8, nil, true},
		{8, 4, nil, false},
		{8, 4, mamba, true},
	} {
		t.Run(fmt.Sprintf("%d to %d, %d groups", c.p, c.d, len(c.groups)), func(t *testing.T) {
			noLeaks(t)
			p, d := ofRanks(t, c.p, c.groups...), ofRanks(t, c.d, c.groups...)
			for seed := range uint64(2) {
				status, right := splitOf(t, p, d, seed, fmt.Sprint(c.p))
				if right != c.right || !right && status == 200 || p.Dead() != nil || d.Dead() != nil {
					t.Errorf("status %d, right %v; dead %v, %v", status, right, p.Dead(), d.Dead())
				}
			}
		})
	}
}

// Engines believe the params. With a wrong size the load fails. So do later loads with the right size, until
// either side is a new process. A size above the peer's real one makes the peer deaf to new handshakes. A
// pair that has shaken hands is not checked again.
func TestSizesThatAreNotThePeers(t *testing.T) {
	for name, c := range map[string]struct {
		p, d    int
		claimed string
		poisons bool // later loads of the pair fail
		deafens bool // the prefill engine answers no handshake
	}{
		"too small":     {4, 4, "2", true, false},
		"left out":      {4, 4, "", true, false},
		"too large":     {1, 4, "4", false, true},
		"no divisor":    {1, 4, "3", false, false},
		"null":          {1, 4, "null", false, false},
		"text":          {1, 4, `"1"`, false, false},
		"zero":          {1, 4, "0", false, false},
		"one on decode": {1, 1, "4", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			p, d := ofRanks(t, c.p), ofRanks(t, c.d)
			other := ofRanks(t, c.d)
			own := fmt.Sprint(c.p)
			if _, right := splitOf(t, p, d, 1, c.claimed); right {
				t.Error("the wrong size was accepted")
			}
			if _, right := splitOf(t, p, d, 2, own); right == (c.poisons || c.deafens) {
				t.Errorf("the right size afterwards: right %v", right)
			}
			if _, right := splitOf(t, p, other, 3, own); right == c.deafens {
				t.Errorf("another decode engine: right %v", right)
			}
			fresh := d
			if c.deafens {
				fresh = p
			}
			if err := fresh.restart(0); err != nil {
				t.Fatal(err)
			}
			http.DefaultClient.CloseIdleConnections()
			for n, claimed := range []string{own, c.claimed} {
				if status, right := splitOf(t, p, d, uint64(4+n), claimed); !right {
					t.Errorf("after a restart, tp_size %s: %d, right %v", claimed, status, right)
				}
			}
			if p.Dead() != nil || d.Dead() != nil {
				t.Error(p.Dead(), d.Dead())
			}
		})
	}
}

// With Mamba layers no check finds a wrong size: the text is wrong.
func TestWrongSizeWithMamba(t *testing.T) {
	noLeaks(t)
	groups := []core.Group{{Kind: "mamba"}, {Kind: "full_attention"}}
	p, d := ofRanks(t, 4, groups...), ofRanks(t, 4, groups...)
	if status, right := splitOf(t, p, d, 1, "1"); status != 200 || right {
		t.Errorf("status %d, right %v; want a wrong text", status, right)
	}
}

// A model that does not fit the number of ranks does not start.
func TestRanksThatDoNotLoad(t *testing.T) {
	_, err := Start(Options{Core: core.Config{TensorParallel: 3}})
	if err == nil || !strings.Contains(err.Error(), "tensor-parallel size 3") {
		t.Error(err)
	}
}

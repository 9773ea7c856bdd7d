package doctor

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// moriio starts a server with MoRI-IO.
func moriio(
	t *testing.T, mode core.MoRIIO, role core.Role, change func(*enginesim.Options),
) *enginesim.Server {
	t.Helper()
	return up(t, with(func(o *enginesim.Options) {
		o.Core.MoRIIO, o.Core.Role = mode, role
		if change != nil {
			change(o)
		}
	}))
}

// A decode engine with MoRI-IO in READ mode gets nothing but decode legs, also from the doctor: it would
// answer other prompts from garbage, and keep the garbage in its cache.
func TestMoRIIOGetsLegsOnly(t *testing.T) {
	t.Parallel()
	var legs atomic.Int32
	p := moriio(t, core.MoRIIORead, core.Producer, nil)
	d := moriio(t, core.MoRIIORead, core.Consumer, func(o *enginesim.Options) {
		o.OnRequest = func(r enginesim.Seen) {
			switch {
			case !strings.HasPrefix(r.Path, "/v1/completions"):
			case strings.Contains(string(r.Body), `"remote_notify_port"`):
				legs.Add(1)
			default:
				t.Errorf("a decode engine got %s %.200s", r.Path, r.Body)
			}
		}
	})
	cfg := pools([]*enginesim.Server{p}, []*enginesim.Server{d})
	cfg.Connector.Type = config.MoRIIO
	r := examine(t, Options{Config: cfg})
	want(t, r)
	if f := find(t, r, "test-prompt", "decode d0"); f.Status != Skipped {
		t.Errorf("%+v", f)
	}
	if f := find(t, r, "handoff-wrong-text", "fleet"); f.Status != OK || legs.Load() == 0 {
		t.Errorf("%d legs, %+v", legs.Load(), f)
	}
}

// The doctor hands prompts over in WRITE mode. Where a decode engine does not listen, it sends no prefill
// leg, with which the prefill engine would stand still.
func TestMoRIIOWriteIsExamined(t *testing.T) {
	t.Parallel()
	p := moriio(t, core.MoRIIOWrite, core.Producer, nil)
	d := moriio(t, core.MoRIIOWrite, core.Consumer, nil)
	cfg := pools([]*enginesim.Server{p}, []*enginesim.Server{d})
	cfg.Connector.Type = config.MoRIIOWrite
	_, port, _ := strings.Cut(d.EngineID(0), ":")
	at, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Connector.HandshakePort, cfg.Connector.NotifyPort = at, at
	r := examine(t, Options{Config: cfg})
	want(t, r)
	if f := find(t, r, "handoff-not-moved", "fleet"); f.Status != OK {
		t.Errorf("%+v", f)
	}
	cfg.Connector.NotifyPort = 1
	r = examine(t, Options{Config: cfg})
	want(t, r, "failed handoff-failed fleet")
	if f := find(t, r, "handoff-failed", "fleet"); !strings.Contains(f.Seen, "does not listen") {
		t.Errorf("%+v", f)
	}
}

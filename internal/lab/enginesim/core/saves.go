package core

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// saving is a block that is being copied to a shared store, and the event that follows.
type saving struct {
	at    time.Duration
	event kv.Event
}

// saves notes that block i of r will be in a shared store. Its event never has cache_salt, adapter or extra
// keys (vLLM 0.32.0, mooncake/store/worker.py, offloading/events.py).
func (e *Engine) saves(r *request, i int) {
	t, size := e.pool.tier, e.cfg.BlockSize
	if !t.shared() || t.Announces == kv.GPU || e.cfg.NoEvents {
		return
	}
	ev := kv.Event{
		Kind: kv.Stored, Hashes: []kv.EngineHash{r.blocks.hashes[i]}, Tier: t.Announces, Bare: true,
		Group: e.groups.full,
	}
	if t.Announces == kv.Shared {
		ev.BlockSize, ev.Tokens = size, slices.Clone(r.text.tokens[i*size:(i+1)*size])
		if i > 0 {
			ev.HasParent, ev.Parent = true, r.blocks.hashes[i-1]
		}
	}
	t.saving = append(t.saving, saving{t.written, ev})
}

// announceSaved adds the events of the blocks that have been copied to a shared store by now.
func (e *Engine) announceSaved(now time.Duration) {
	t := e.pool.tier
	for t != nil && len(t.saving) > 0 && t.saving[0].at <= now {
		e.pool.events = append(e.pool.events, t.saving[0].event)
		t.saving = t.saving[1:]
	}
}

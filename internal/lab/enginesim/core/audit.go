package core

import "fmt"

// Audit checks conservation and returns the first violation. Each block is free, or held as often as requests
// say. Each request is live in one place, or has ended. Each prompt token was computed, cached or received.
// Audit reads every block, so use it in tests and validation only.
func (e *Engine) Audit() error {
	if e.life.dead != nil {
		return nil
	}
	for _, law := range []func() error{e.auditBlocks, e.auditRequests, e.counted.auditTokens} {
		if err := law(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) auditBlocks() error {
	refs := make([]int32, len(e.pool.blocks))
	for _, m := range []map[string]*request{e.known.reqs, e.known.held} {
		for _, r := range m {
			for _, held := range [][]int32{r.blocks.table, r.blocks.beside} {
				for _, id := range held {
					refs[id]++
				}
			}
		}
	}
	free := 0
	for id := 1; id < len(refs); id++ {
		b := &e.pool.blocks[id]
		// A leaked request's blocks stay held, but no request holds them.
		if b.refs < refs[id] || b.refs > refs[id] && e.loads.leaked == 0 {
			return fmt.Errorf("block %d: %d references, but %d holders", id, b.refs, refs[id])
		}
		if b.refs == 0 {
			free++
		}
	}
	listed := 0
	for id := e.pool.blocks[0].next; id != 0 && listed <= len(refs); id = e.pool.blocks[id].next {
		listed++
	}
	if free != e.pool.free || listed != free {
		return fmt.Errorf("%d blocks are unheld, %d are queued, %d are counted", free, listed, e.pool.free)
	}
	return nil
}

func (e *Engine) auditRequests() error {
	if n := len(e.queues.running) + e.queues.waiting.len() + len(e.loads.loading); n != len(e.known.reqs) {
		return fmt.Errorf("%d requests are live, %d are queued, loading or running", len(e.known.reqs), n)
	}
	var ended uint64
	for _, n := range e.counted.counts.Finished {
		ended += n
	}
	if e.known.seq != ended+uint64(len(e.known.reqs)) {
		return fmt.Errorf("%d requests came, %d ended, %d are live", e.known.seq, ended, len(e.known.reqs))
	}
	return nil
}

func (e *counted) auditTokens() error {
	c := &e.counts
	if c.PromptTokens != c.PromptComputed+c.PromptLocal+c.PromptExternal {
		return fmt.Errorf("%d prompt tokens: %d computed, %d cached, %d received",
			c.PromptTokens, c.PromptComputed, c.PromptLocal, c.PromptExternal)
	}
	return nil
}

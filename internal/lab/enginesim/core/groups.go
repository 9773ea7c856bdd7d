package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/kv"
)

// Group is one KV cache group of a hybrid model.
type Group struct {
	Kind      string // kind of attention in vLLM's spelling: full_attention, mamba, sliding_window, …
	BlockSize int    // in tokens, a multiple of the engine's BlockSize; default: the engine's
	Window    int    // tokens of a sliding window
}

const fullAttention = "full_attention"

// ParseGroups reads groups as "KIND[:BLOCK_SIZE[:WINDOW]]", separated by commas.
func ParseGroups(s string) (gs []Group, err error) {
	for text := range strings.SplitSeq(s, ",") {
		parts := strings.Split(text, ":")
		g := Group{Kind: parts[0]}
		for i, into := range []*int{&g.BlockSize, &g.Window} {
			if i+1 >= len(parts) || parts[i+1] == "" {
				continue
			}
			if *into, err = strconv.Atoi(parts[i+1]); err != nil || *into < 0 {
				return nil, fmt.Errorf("group %q: %q is not a number of tokens", text, parts[i+1])
			}
		}
		if g.Kind == "" || len(parts) > 3 {
			return nil, fmt.Errorf("group %q: want KIND[:BLOCK_SIZE[:WINDOW]]", text)
		}
		gs = append(gs, g)
	}
	return gs, nil
}

// groups are the KV cache groups of an engine, as in vLLM's HybridKVCacheCoordinator. The rest of the
// simulator knows only full attention: tables, contents, transfers. All other groups are thin: each holds a
// few blocks of the same pool. These blocks are announced, and they limit how much of a cached prefix can be
// used.
type groups struct {
	full  int // number of the full-attention group
	count int
	thin  []thinGroup
	align int // in engine blocks: hits end at multiples of align (vLLM's scheduler_block_size)
}

// thinGroup keeps only the blocks that a request needs to continue behind a boundary.
type thinGroup struct {
	Group
	number int
	step   int // engine blocks per block of the group
	need   int // blocks of the group that a boundary needs
}

// newGroups reads the configured groups. If none is full attention, newGroups puts a full-attention group
// first.
func newGroups(c *Config) groups {
	list := slices.Clone(c.Groups)
	if !slices.ContainsFunc(list, func(g Group) bool { return g.Kind == fullAttention }) {
		list = slices.Insert(list, 0, Group{Kind: fullAttention})
	}
	gs := groups{count: len(list), align: 1}
	gs.full = slices.IndexFunc(list, func(g Group) bool { return g.Kind == fullAttention })
	for i, g := range list {
		if i == gs.full {
			continue
		}
		step := max(1, cmp.Or(g.BlockSize, c.BlockSize)/c.BlockSize)
		g.BlockSize = step * c.BlockSize
		t := thinGroup{Group: g, number: i, step: step, need: 1}
		if g.Window > 1 {
			t.need = (g.Window-2)/g.BlockSize + 1
		}
		gs.thin = append(gs.thin, t)
		gs.align = lcm(gs.align, step)
	}
	return gs
}

func lcm(a, b int) int {
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

func (gs *groups) thinOf(number int) *thinGroup {
	i := slices.IndexFunc(gs.thin, func(g thinGroup) bool { return g.number == number })
	return &gs.thin[i]
}

// nameIn returns the hash under which the pool caches a group's block. One block has a different name in each
// group.
func (gs *groups) nameIn(group int, h kv.EngineHash) kv.EngineHash {
	if group == gs.full {
		return h
	}
	return h ^ kv.EngineHash(mix(groupSeed, uint64(group)))
}

// names returns the names of blocks in a group.
func (gs *groups) names(group int, hashes []kv.EngineHash) []kv.EngineHash {
	named := make([]kv.EngineHash, len(hashes))
	for i, h := range hashes {
		named[i] = gs.nameIn(group, h)
	}
	return named
}

const groupSeed = 0x6A09E667F3BCC909

// servable returns how many of r's first n blocks, all cached by full attention, can be used: behind them,
// every group can continue.
func (e *Engine) servable(r *request, n int) int {
	for n -= n % e.groups.align; n > 0; n -= e.groups.align {
		if !slices.ContainsFunc(e.groups.thin, func(g thinGroup) bool { return !e.serves(r, &g, n) }) {
			return n
		}
	}
	return 0
}

// narrow shortens a hit of n blocks to what all groups can serve, and finds the thin groups' blocks for that
// hit. If full attention has more, the longer prefix is noted as shared between requests. Then commitThin
// keeps what a later request needs to continue at its end, as vLLM does.
func (e *Engine) narrow(r *request, n int) int {
	served := e.servable(r, n)
	if shared := n - n%e.groups.align; shared > served {
		r.cached.junction = shared
	}
	e.turn.beside = e.besides(r, served)
	return served
}

func (e *Engine) serves(r *request, g *thinGroup, n int) bool {
	for _, h := range g.tail(r.blocks.hashes, n) {
		if e.pool.first(e.groups.nameIn(g.number, h)) == 0 {
			return false
		}
	}
	return true
}

// tail returns the hashes of the blocks that a group needs to continue behind n engine blocks, in order.
func (g *thinGroup) tail(hashes []kv.EngineHash, n int) (tail []kv.EngineHash) {
	for at := n - (g.need-1)*g.step; at <= n; at += g.step {
		if at > 0 {
			tail = append(tail, hashes[at-1])
		}
	}
	return tail
}

// behind returns the part of the tail of n engine blocks that lies behind the first ones.
func (g *thinGroup) behind(hashes []kv.EngineHash, first, n int) []kv.EngineHash {
	tail := g.tail(hashes, n)
	return tail[max(0, len(tail)-(n-first+g.step-1)/g.step):]
}

// besides returns the thin groups' blocks that belong to a hit of n blocks.
func (e *Engine) besides(r *request, n int) []int32 {
	ids := e.turn.beside[:0]
	for i := range e.groups.thin {
		g := &e.groups.thin[i]
		for _, h := range g.tail(r.blocks.hashes, n) {
			ids = append(ids, e.pool.first(e.groups.nameIn(g.number, h)))
		}
	}
	return ids
}

// commitThin caches and announces what a thin group keeps of r's blocks from..to. By default
// (prefix_cache_retention_interval 0), it keeps the blocks for two kinds of later requests, as vLLM does:
// those that repeat the prompt, and those that leave a shared prefix where r left it.
func (e *Engine) commitThin(r *request, g *thinGroup, from, to int) {
	from, to = from/g.step*g.step, to/g.step*g.step
	if from == to {
		return
	}
	size := e.cfg.BlockSize
	ev := kv.Event{
		Kind: kv.Stored, Tokens: r.text.tokens[from*size : to*size : to*size], BlockSize: g.BlockSize,
		LoRA: r.ask.lora, SpecKind: g.Kind, Window: g.Window, Group: g.number,
	}
	if from > 0 {
		ev.HasParent, ev.Parent = true, r.blocks.hashes[from-1]
	}
	begin := len(r.blocks.beside)
	for at := from + g.step; at <= to; at += g.step {
		if !e.keeps(r, g, at, to) || e.pool.free == 0 {
			continue
		}
		if at == g.step {
			ev.Salt = r.ask.salt
		}
		r.blocks.beside = e.pool.take(r.blocks.beside, 1)
		e.pool.cacheIn(g.number, r.blocks.beside[len(r.blocks.beside)-1], r.blocks.hashes[at-1])
		ev.Hashes = append(ev.Hashes, r.blocks.hashes[at-1])
	}
	if !e.cfg.NoEvents {
		e.pool.events = append(e.pool.events, ev)
	}
	if past := len(r.blocks.beside) - g.need; e.cfg.Retain && past > begin { // blocks that left the window
		e.pool.release(r.blocks.beside[begin:past])
		r.blocks.beside = slices.Delete(r.blocks.beside, begin, past)
	}
}

// keeps reports whether the group keeps its block that ends at engine block at. It keeps blocks that one of
// r's boundaries needs, or, with Retain, all computed blocks. Of loaded blocks, up to number to, it has the
// last.
func (e *Engine) keeps(r *request, g *thinGroup, at, to int) bool {
	if e.cfg.Retain {
		return at*e.cfg.BlockSize > r.load.received || at > to-g.need*g.step
	}
	replay := (r.text.prompt - 1) / e.cfg.BlockSize / e.groups.align * e.groups.align
	return slices.ContainsFunc([]int{replay, r.cached.junction}, func(boundary int) bool {
		return at <= boundary && at > boundary-g.need*g.step
	})
}

// has reports whether the group has r's block that ends at engine block at, of n computed ones. Of a hit, it
// has what the hit needs.
func (e *Engine) has(r *request, g *thinGroup, at, n int) bool {
	if hit := r.cached.local / e.cfg.BlockSize; at <= hit {
		return at > hit-g.need*g.step
	}
	return e.keeps(r, g, at, n)
}

// letGo releases r's blocks of thin groups. They stay cached.
func (e *Engine) letGo(r *request) {
	e.pool.release(r.blocks.beside)
	r.blocks.beside = r.blocks.beside[:0]
}

package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// again is the stream of an engine that continues an answer.
type again struct {
	from   int          // tokens of the answer that its prompt holds
	next   int          // which token of the answer its next one is
	expect []byte       // text that it has to say again
	cached CachedPrompt // when the answer began
}

// over reports whether it has said all again that was delivered.
func (a *again) over(delivered int) bool { return a.next >= delivered && len(a.expect) == 0 }

// Why another engine cannot go on with an answer.
const (
	NotText      = "not_text" // it has more than text: reasoning, tool calls
	NoIDs        = "no_ids"   // the engine tells no token ids
	SampledAgain = "sampled"  // some tokens would have to be generated again, and generation is not greedy
)

// Resumable tells why another engine cannot go on with the answer, "" when it can.
func (d *Delivered) Resumable() string {
	switch {
	case d.end.lost:
		return NotText
	case len(d.sent.promptIDs()) == 0:
		return NoIDs
	case !d.want.Greedy && (len(d.from.text) > 0 || d.end.finished || d.want.ReturnIDs &&
		d.from.point < len(d.ids)):
		return SampledAgain
	}
	return ""
}

// Clone returns a copy, from which the same engine can be tried again.
func (d *Delivered) Clone() *Delivered {
	c := *d
	c.ids = slices.Clip(d.ids)
	c.from.marks = slices.Clone(d.from.marks)
	c.from.text = bytes.Clone(d.from.text)
	if d.again != nil {
		c.again = new(*d.again)
	}
	return &c
}

// Resume turns to another engine: from now on the events come from that engine. It returns the token ids for
// the engine's prompt, and how many ids belong to the answer. cached is the number of cached prompt tokens
// in the usage for the client; if it is unknown, the usage has the engine's number. Call Resume where
// [Delivered.Resumable] agrees, and again for every engine that continues. Only the first call's cached
// counts.
func (d *Delivered) Resume(cached CachedPrompt) (prompt []uint32, done int) {
	if d.again != nil {
		cached = d.again.cached
	}
	if !d.want.Greedy { // no text of theirs was delivered
		d.ids, d.from.marks = d.ids[:d.from.point], nil
	}
	d.again = &again{from: d.from.point, next: d.from.point, expect: bytes.Clone(d.from.text), cached: cached}
	return slices.Concat(d.sent.promptIDs(), d.ids[:d.from.point]), d.from.point
}

// continued appends an event of a continuing engine, under the names of the first. It compares the delivered
// part of the event with the answer, and leaves this part out.
//
// Long: the cases rule each other out in this order, and share the parsed parts of the chunk.
func (d *Delivered) continued(dst []byte, e Event, c *chunk, ok bool) ([]byte, error) {
	a := d.again
	if !ok || c.count > 1 || c.other {
		return dst, ErrDiverged
	}
	patches := d.recount(d.like.rename(nil, c), c, e)
	if c.count == 0 {
		if !a.over(len(d.ids)) {
			return dst, ErrDiverged
		}
		d.end.counted = d.end.counted || c.usage.end > 0
		return apply(dst, e, sorted(patches)), nil
	}
	ids, text := readIDs(c.ids.of(e)), inner(c.text.of(e))
	if c.role && len(ids) == 0 && len(text) == 0 {
		return dst, nil // the client has received the role
	}
	said := min(len(d.ids)-a.next, len(ids))
	if !slices.Equal(ids[:said], d.ids[a.next:a.next+said]) {
		return dst, ErrDiverged
	}
	rest, cut, same := a.compare(text)
	fresh := ids[said:]
	a.next += len(ids)
	d.ids = append(d.ids, fresh...)
	switch {
	case !same, len(rest) > 0 && len(ids) == 0 && !c.finish, c.finish && !a.over(len(d.ids)):
		return dst, ErrDiverged
	case d.end.finished && (len(fresh) > 0 || len(rest) > 0):
		return dst, ErrDiverged
	case d.end.finished, len(fresh) == 0 && len(rest) == 0 && len(ids) > 0 && !c.finish:
		return dst, nil
	}
	d.tookAgain(c, len(ids), len(fresh), rest)
	if c.bare() && !d.want.ReturnIDs {
		return dst, nil
	}
	if cut { // the lengths tell nothing: the rest is escaped anew
		patches = append(patches, patch{c.text, slices.Concat([]byte{'"'}, rest, []byte{'"'})})
	}
	return apply(dst, e, sorted(d.hideSaid(patches, c, said, fresh))), nil
}

// compare removes the text that the engine has to repeat from the beginning of raw, a string without its
// quotes, and returns the rest. cut says whether it removed any.
func (a *again) compare(raw []byte) (rest []byte, cut, same bool) {
	if len(a.expect) == 0 || len(raw) == 0 {
		return raw, false, true
	}
	text := appendUnescaped(nil, raw)
	n := min(len(text), len(a.expect))
	if !bytes.Equal(text[:n], a.expect[:n]) {
		return nil, false, false
	}
	a.expect = a.expect[n:]
	return inner(rawjson.AppendString(nil, string(text[n:]))), true, true
}

// tookAgain notes the new part of an event with n tokens, of which fresh are new.
func (d *Delivered) tookAgain(c *chunk, n, fresh int, text []byte) {
	if d.end.finished = c.finish; d.end.finished {
		d.from.text = appendUnescaped(d.from.text, text)
		return
	}
	if fresh < n {
		n++ // an event whose last token may have held bytes back
	}
	d.took(n, text)
}

// rename gives the event the first engine's names.
func (d *likeness) rename(patches []patch, c *chunk) []patch {
	for _, n := range d.names {
		at := map[string]span{"id": c.id, "created": c.created, "model": c.model}[n.key]
		if at.end > 0 {
			patches = append(patches, patch{at, n.value})
		}
	}
	return patches
}

// recount changes the usage to the whole answer's. The total stays.
func (d *Delivered) recount(patches []patch, c *chunk, e Event) []patch {
	if c.usage.end == 0 {
		return patches
	}
	usage := c.usage.of(e)
	set := func(inside span, object []byte, name string, to func(was int) int) {
		if at, ok := member(object, name, 0); ok {
			if was := count(at.of(object), -1); was >= 0 {
				at = span{inside.start + at.start, inside.start + at.end}
				patches = append(patches, patch{at, strconv.AppendInt(nil, int64(to(was)), 10)})
			}
		}
	}
	set(c.usage, usage, "prompt_tokens", func(int) int { return len(d.sent.promptIDs()) })
	set(c.usage, usage, "completion_tokens", func(was int) int { return was + d.again.from })
	if at, ok := member(usage, "prompt_tokens_details", '{'); ok {
		inside := span{c.usage.start + at.start, c.usage.start + at.end}
		ofPrompt := func(known int) func(was int) int {
			return func(was int) int {
				if known >= 0 {
					return known
				}
				return min(was, len(d.sent.promptIDs()))
			}
		}
		set(inside, at.of(usage), "cached_tokens", ofPrompt(d.again.cached.Found))
		set(inside, at.of(usage), "created_cache_tokens", ofPrompt(d.again.cached.Added))
	}
	return patches
}

// hideSaid leaves the ids that the client asked for and has not got.
func (d *Delivered) hideSaid(patches []patch, c *chunk, said int, fresh []uint32) []patch {
	if c.prompt.end > 0 {
		patches = append(patches, patch{c.prompt, null})
	}
	switch {
	case c.ids.end == 0:
	case !d.want.ReturnIDs:
		patches = append(patches, patch{c.ids, null})
	case said > 0:
		patches = append(patches, patch{c.ids, AppendIDs(nil, fresh)})
	}
	return patches
}

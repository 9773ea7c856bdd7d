package openai

import (
	"bytes"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Delivered is what a client has been given of a streamed answer with one choice. It is kept so that another
// engine can continue the answer. Every event of the stream goes through Delivered: [Delivered.Append] or
// [Delivered.Event] remove the token ids that the client did not ask for.
//
// An engine turns tokens into text as the tokens come. It holds back bytes that do not make a whole
// character yet, and characters that may begin a stop string. The text of another engine begins with its
// first new token. So text that was held back is lost unless that engine generates its tokens again. Another
// engine can therefore continue only from a token where the client has got all the text so far. The newest
// such token is kept as point, with the text that the client got after it. The other engine will generate
// that text again.
//
// Not safe for concurrent use.
type Delivered struct {
	kind Kind
	want Continuation

	sent promptTokens
	ids  []uint32 // of the answer
	like likeness

	from resumePoint

	end deliveredEnd

	again *again // the stream of a continuing engine, nil for the first engine
}

// promptTokens is the prompt's tokens. They are read only when needed.
type promptTokens struct {
	asked  []byte   // the prompt's ids as the engine wrote them; hardly any is ever read
	prompt []uint32 // the ids after reading, see promptIDs
}

// likeness is what the events of one stream have in common, so that only the rest of each is scanned.
type likeness struct {
	names []named // raw values that every event of the answer has, as the first had them
	// An event up to its text, and from there up to its token ids: nearly all events are alike in both.
	head   []byte
	middle []byte
}

// resumePoint is the place at which another engine would continue: a number of tokens whose text the client
// has received. The text from base on is kept, and none before it.
type resumePoint struct {
	point int    // how many of ids the prompt of another engine would hold
	base  int    // characters of the answer up to there
	text  []byte // what the client got behind base
	chars int    // what the client got in all, counted where something can be held back
	marks []mark // the tokens behind point from which going on may become possible
}

// deliveredEnd is how much of the end the client has got.
type deliveredEnd struct {
	finished bool // the finish reason has been delivered
	counted  bool // and the usage behind it
	lost     bool // there was something that cannot be continued
}

// mark is a token with which text came, so that none of its bytes was held back. The text of all tokens up to
// it is Hold characters longer than what the client had got then, where stop strings are not included.
type mark struct{ tokens, chars int }

// named is a member and its raw value.
type named struct {
	key   string
	value []byte
}

// NewDelivered begins an answer without any events yet.
func NewDelivered(kind Kind, want Continuation) *Delivered {
	return &Delivered{kind: kind, want: want}
}

// Tokens returns how many tokens of the answer the client has got.
func (d *Delivered) Tokens() int { return len(d.ids) }

// Complete reports whether the client has got all but the end marker: the finish reason and, where usage is
// to follow, that too.
func (d *Delivered) Complete(usage bool) bool { return d.end.finished && (d.end.counted || !usage) }

// Append appends whole events, each with its blank line "\n\n", as the client is to see them. They must hold
// no usage, error or end of the stream.
func (d *Delivered) Append(dst, events []byte) ([]byte, error) {
	if d.again == nil && d.end.lost && (d.want.ReturnIDs || !bytes.Contains(events, idsMark)) {
		return append(dst, events...), nil
	}
	for len(events) > 0 {
		n := len(events)
		if end := bytes.Index(events, blank); end >= 0 {
			n = end + len(blank)
		}
		var ok bool
		if dst, ok = d.quick(dst, events[:n]); !ok {
			var err error
			if dst, err = d.Event(dst, Event(events[:n])); err != nil {
				return dst, err
			}
		}
		events = events[n:]
	}
	return dst, nil
}

var (
	blank = []byte("\n\n")
	// A quote in a string is always escaped, so that no text can look like the name of a member.
	idsMark = []byte(`token_ids":[`)
	null    = []byte("null")
)

// quick appends an event that differs from an earlier one in its text and its token ids alone, as nearly all
// do. It reports false, and does nothing, where it is another.
func (d *Delivered) quick(dst, e []byte) ([]byte, bool) {
	if d.like.head == nil || d.again != nil || d.end.lost || !bytes.HasPrefix(e, d.like.head) {
		return dst, false
	}
	at := len(d.like.head)
	n := stringLen(e[at:])
	if n < 0 || !bytes.HasPrefix(e[at+n:], d.like.middle) {
		return dst, false
	}
	open, before := at+n+len(d.like.middle), len(d.ids)
	var size int
	if d.ids, size = appendIDs(d.ids, e[open:]); size < 0 {
		d.ids = d.ids[:before]
		return dst, false
	}
	d.took(len(d.ids)-before, e[at:at+n])
	if d.want.ReturnIDs {
		return append(dst, e...), true
	}
	dst = append(append(dst, e[:open-1]...), null...)
	return append(dst, e[open+size:]...), true
}

// stringLen returns where the string that b begins in ends, -1 when it does not.
func stringLen(b []byte) int {
	for at := 0; ; at++ {
		i := bytes.IndexByte(b[at:], '"')
		if i < 0 || at+i+1 >= len(b) {
			return -1
		}
		at += i
		escaped := false
		for j := at - 1; j >= 0 && b[j] == '\\'; j-- {
			escaped = !escaped
		}
		if !escaped {
			return at
		}
	}
}

// appendIDs reads ids up to the closing bracket and returns how many bytes that were, the bracket included;
// -1 for anything but plain numbers.
func appendIDs(ids []uint32, b []byte) ([]uint32, int) {
	id, digits := uint64(0), 0
	for i, c := range b {
		switch {
		case '0' <= c && c <= '9' && digits < 10:
			id, digits = id*10+uint64(c-'0'), digits+1
		case (c == ',' || c == ']') && digits > 0 && id < 1<<32:
			ids = append(ids, uint32(id))
			id, digits = 0, 0
			if c == ']' {
				return ids, i + 1
			}
		case c == ']' && i == 0:
			return ids, 1
		default:
			return ids, -1
		}
	}
	return ids, -1
}

// took notes that the text came with n tokens, the newest of ids. Of several tokens the last may have bytes
// that are held back.
func (d *Delivered) took(n int, raw []byte) {
	switch {
	case len(raw) == 0:
		return
	case d.want.Hold == 0 && n == 1:
		d.from.point, d.from.text = len(d.ids), d.from.text[:0]
		return
	}
	from := len(d.from.text)
	if d.from.text = appendUnescaped(d.from.text, raw); d.want.Hold == 0 {
		return
	}
	d.from.chars += utf8.RuneCount(d.from.text[from:])
	if n == 1 {
		d.from.marks = append(d.from.marks, mark{len(d.ids), d.from.chars})
	}
	d.advance()
}

// advance moves the point to the newest mark up to which the client has got all text.
func (d *Delivered) advance() {
	n := 0
	for n < len(d.from.marks) && d.from.marks[n].chars+d.want.Hold <= d.from.chars {
		n++
	}
	if n == 0 {
		return
	}
	newest := d.from.marks[n-1]
	base := newest.chars
	if !d.want.Included {
		base += d.want.Hold
	}
	d.from.text = slices.Delete(d.from.text, 0, runes(d.from.text, base-d.from.base))
	d.from.point, d.from.base = newest.tokens, base
	d.from.marks = slices.Delete(d.from.marks, 0, n)
}

// runes returns how many bytes the first n characters of b take.
func runes(b []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(b); n-- {
		_, size := utf8.DecodeRune(b[at:])
		at += size
	}
	return at
}

// appendUnescaped appends what a JSON string says, given without its quotes.
func appendUnescaped(dst, raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return append(dst, raw...)
	}
	return append(dst, rawjson.Text(slices.Concat([]byte{'"'}, raw, []byte{'"'}))...)
}

// Event appends one event as the client is to see it; nothing where it is not to see it at all. The error is
// [ErrDiverged].
func (d *Delivered) Event(dst []byte, e Event) ([]byte, error) {
	if e.IsComment() || e.IsDone() {
		return append(dst, e...), nil
	}
	c, ok := readChunk(e)
	if d.again != nil {
		return d.continued(dst, e, &c, ok)
	}
	if !ok {
		d.end.lost = true
		return append(dst, e...), nil
	}
	if d.like.names == nil && c.count > 0 {
		d.like.names = c.names(e)
	}
	if c.prompt.end > 0 {
		d.sent.asked, d.sent.prompt = bytes.Clone(c.prompt.of(e)), nil
	}
	ids := readIDs(c.ids.of(e))
	d.note(&c, e, ids)
	if d.want.ReturnIDs {
		return append(dst, e...), nil
	}
	if c.bare() && len(ids) > 0 {
		return dst, nil // vLLM sends it for the sake of the ids alone, where a parser has taken the text
	}
	return apply(dst, e, c.hide(nil)), nil
}

// note takes an event of the first engine into account.
func (d *Delivered) note(c *chunk, e Event, ids []uint32) {
	text := inner(c.text.of(e))
	switch {
	case c.count == 0:
		d.end.counted = d.end.counted || c.usage.end > 0
		return
	case c.role && len(ids) == 0 && len(text) == 0:
		return
	case c.count > 1 || c.index != 0 || c.other || len(ids) == 0 && len(text) > 0 && !c.finish:
		d.end.lost = true
		return
	}
	d.ids = append(d.ids, ids...)
	// The point stays before the last token, with which an engine says the end again.
	if d.end.finished = d.end.finished || c.finish; d.end.finished {
		d.from.text = appendUnescaped(d.from.text, text)
		return
	}
	d.took(len(ids), text)
	if d.like.head == nil && c.prompt.end == 0 && c.text.end > 0 && c.text.end < c.ids.start {
		d.like.head, d.like.middle = bytes.Clone(e[:c.text.start+1]), bytes.Clone(e[c.text.end-1:c.ids.start+1])
	}
}

// inner is a raw string without its quotes.
func inner(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// promptIDs are the prompt's tokens by the engine's own count, none where the engine sent none.
func (d *promptTokens) promptIDs() []uint32 {
	if d.prompt == nil {
		d.prompt = readIDs(d.asked)
	}
	return d.prompt
}

// readIDs reads a raw array of ids, nil when it is none.
func readIDs(raw []byte) []uint32 {
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	s := scanner(raw)
	ids := s.IDs(nil)
	if s.Err() != nil {
		return nil
	}
	return ids
}

// ErrDiverged says that a continuing engine did not repeat the delivered tokens, or not their text.
var ErrDiverged = errors.New("the continued answer does not match what was delivered")

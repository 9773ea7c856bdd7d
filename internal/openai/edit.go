package openai

import (
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Edit is a body being edited: members that are neither set nor deleted keep their bytes. Not safe for
// concurrent use. Values are kept, not copied.
type Edit struct {
	raw    []byte
	object span
	fields []field
	ops    []op
	few    [8]op // memory of ops
}

// op is what becomes of the members of one name; a nil value deletes them.
type op struct {
	key   string
	value []byte
}

// Edit begins an edit of the request's body.
func (r *Request) Edit() *Edit {
	e := &Edit{raw: r.Raw, object: r.object, fields: r.fields}
	e.ops = e.few[:0]
	return e
}

// NewEdit begins an empty object.
func NewEdit() *Edit {
	e := &Edit{raw: noMembers, object: span{0, 2}}
	e.ops = e.few[:0]
	return e
}

var noMembers = []byte("{}")

// EditPrompt begins an edit of a completion with its i-th prompt as the only one.
func (r *Request) EditPrompt(i int) *Edit {
	e := r.Edit()
	if r.Batched {
		e.Set("prompt", r.Prompts[i].raw())
	}
	return e
}

func (p Prompt) raw() []byte {
	if p.Text != nil {
		return p.Text
	}
	return p.IDsRaw
}

// Set gives key the raw JSON value. The value replaces the first member with this name, and the other such
// members go; without one, the member is added at the end. A nil value deletes.
func (e *Edit) Set(key string, value []byte) {
	for i := range e.ops {
		if e.ops[i].key == key {
			e.ops[i].value = value
			return
		}
	}
	e.ops = append(e.ops, op{key, value})
}

// Delete removes every member named key.
func (e *Edit) Delete(key string) { e.Set(key, nil) }

// member returns the raw value of the last member of a name, nil where there is none.
func (r *Request) member(name string) []byte {
	for _, f := range slices.Backward(r.fields) {
		if rawjson.Equal(f.key.of(r.Raw), name) {
			return f.value.of(r.Raw)
		}
	}
	return nil
}

// Len returns how many bytes Append adds at most.
func (e *Edit) Len() int {
	n := len(e.raw)
	for _, o := range e.ops {
		n += len(o.key) + len(o.value) + len(`,"":`)
	}
	return n
}

// Append appends the edited body to dst.
func (e *Edit) Append(dst []byte) []byte {
	var room [32]bool
	done := append(room[:0], make([]bool, len(e.ops))...) // sets that have found their place
	// The bytes before pos have been written or dropped; kept: a member was written.
	pos, kept := 0, false
	for i, f := range e.fields {
		o := e.find(f.key.of(e.raw))
		switch {
		case o < 0:
			dst = append(dst, e.raw[pos:f.value.end]...)
		case e.ops[o].value != nil && !done[o]:
			done[o] = true
			dst = append(dst, e.raw[pos:f.value.start]...)
			dst = append(dst, e.ops[o].value...)
		case kept:
			pos = f.value.end
			continue
		default: // nothing before it stays: it goes with all up to the next name
			dst = append(dst, e.raw[pos:f.key.start]...)
			if pos = f.value.end; i+1 < len(e.fields) {
				pos = e.fields[i+1].key.start
			}
			continue
		}
		pos, kept = f.value.end, true
	}
	if len(e.fields) == 0 {
		pos = e.object.start + 1
		dst = append(dst, e.raw[:pos]...)
	}
	for i, o := range e.ops {
		if o.value != nil && !done[i] {
			dst = appendMember(dst, o, kept)
			kept = true
		}
	}
	return append(dst, e.raw[pos:]...)
}

func (e *Edit) find(key []byte) int {
	for i := range e.ops {
		if rawjson.Equal(key, e.ops[i].key) {
			return i
		}
	}
	return -1
}

func appendMember(dst []byte, o op, comma bool) []byte {
	if comma {
		dst = append(dst, ',')
	}
	dst = rawjson.AppendString(dst, o.key)
	dst = append(dst, ':')
	return append(dst, o.value...)
}

// AppendIDs appends ids as a JSON array.
func AppendIDs(dst []byte, ids []uint32) []byte { return rawjson.AppendIDs(dst, ids) }

// EditOwn is the body of a completion of the router's own, after the edits that edit makes.
func EditOwn(body []byte, edit func(*Edit) error) ([]byte, error) {
	r, err := Parse(Completions, body, Limits{})
	if err != nil {
		return nil, err
	}
	e := r.Edit()
	if err := edit(e); err != nil {
		return nil, err
	}
	return e.Append(nil), nil
}

// The members that leg 1 drops from a client's own body. Leg 1 makes one token that nobody sees, and the
// members listed here take no part in making the prompt or its KV blocks. Members that might (tools,
// response_format, template arguments) stay, because both legs must have the same ids.
var notOnPrefill = [...]string{
	"stream_options", "min_tokens", "min_completion_tokens", "logprobs", "top_logprobs", "prompt_logprobs", "n",
	"best_of",
	"stop", "stop_token_ids", "include_stop_str_in_output", "structured_outputs",
	"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
	"guided_whitespace_pattern",
}

// What leg 1 made from ids takes over from the client's body.
var onPrefill = [...]string{"cache_salt", "priority", "session_id"}

// Shared JSON numbers of the legs, which must not be changed.
var one, zero = []byte("1"), []byte("0")

// PrefillIDs begins leg 1 on /v1/completions from ids, a raw JSON array: one token, and only the client's
// fields that name the model, the cache and the queue. It serves every kind of request, because a pull
// matches only the ids.
func (r *Request) PrefillIDs(ids []byte) *Edit {
	e := NewEdit()
	if model := r.member("model"); model != nil {
		e.Set("model", model)
	}
	e.Set("prompt", ids)
	e.Set("max_tokens", one)
	e.Set("temperature", zero)
	for _, key := range onPrefill {
		if r.Kind == Messages && key != "cache_salt" { // this API has only cache_salt
			continue
		}
		if value := r.member(key); value != nil && !isNull(value) {
			e.Set(key, value)
		}
	}
	return e
}

// PrefillBody begins leg 1 on the request's own path from the client's own body, for when there are no ids
// that both legs could share. With returnIDs the engine is asked for the prompt's ids. For a batch, set
// prompt as well.
func (r *Request) PrefillBody(returnIDs bool) *Edit {
	e := r.Edit()
	if r.member("stream") != nil {
		e.Set("stream", []byte("false"))
	}
	e.Set("max_tokens", one)
	if r.member("max_completion_tokens") != nil {
		e.Set("max_completion_tokens", one)
	}
	for _, key := range notOnPrefill {
		e.Delete(key)
	}
	if returnIDs {
		e.Set("return_token_ids", []byte("true"))
	}
	return e
}

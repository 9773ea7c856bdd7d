package openai

import (
	"errors"
	"iter"
)

var errTodo = errors.New("not written yet")

type span struct{ start, end int }
type field struct{ key, value span }

// Parse reads body, which the result keeps and nobody may change afterwards. Errors are *[BadRequest].
func Parse(kind Kind, body []byte, lim Limits) (*Request, error) { return nil, errTodo }

// Sanitize returns body without transfer params, for the paths that are passed through; body itself when there were none.
// Any valid JSON is accepted. Errors are *[BadRequest].
func Sanitize(body []byte, lim Limits) ([]byte, error) { return nil, errTodo }

// Peek reads the model and the stream flag of any JSON object, as far as it can; for routing what is passed through.
func Peek(body []byte) (model string, stream bool) { return "", false }

// Edit is a body being edited: what is not set or deleted keeps its bytes. Not safe for concurrent use. Values are kept, not copied.
type Edit struct{}

// Edit begins an edit of the request's body.
func (r *Request) Edit() *Edit { return &Edit{} }

// EditPrompt begins an edit of a completion with its i-th prompt as the only one.
func (r *Request) EditPrompt(i int) *Edit { return &Edit{} }

// PrefillIDs begins leg 1 on /v1/completions from ids, a raw JSON array: one token, and of the client's fields only those that name the model, the cache and the queue.
func (r *Request) PrefillIDs(ids []byte) *Edit { return &Edit{} }

// PrefillBody begins leg 1 on the request's own path from the client's own body, for when there are no ids that both legs could share.
// With returnIDs the engine is asked for the prompt's ids.
func (r *Request) PrefillBody(returnIDs bool) *Edit { return &Edit{} }

// Set gives key the raw JSON value, in place of the first member of that name (the others go), or at the end.
func (e *Edit) Set(key string, value []byte) {}

// Delete removes every member named key.
func (e *Edit) Delete(key string) {}

// SetPromptIDs sets prompt to ids.
func (e *Edit) SetPromptIDs(ids []uint32) {}

// AskUsage turns on stream_options.include_usage and keeps the other options; only for streams.
func (e *Edit) AskUsage() {}

// Len returns how many bytes Append adds.
func (e *Edit) Len() int { return 0 }

// Append appends the edited body to dst.
func (e *Edit) Append(dst []byte) []byte { return dst }

// AppendIDs appends ids as a JSON array.
func AppendIDs(dst []byte, ids []uint32) []byte { return dst }

// Event is one server-sent event with its blank line, as it came.
type Event []byte

// Data returns the event's data without the field name; nil when it has none.
func (e Event) Data() []byte { return nil }

// IsDone reports whether the event is the end marker.
func (e Event) IsDone() bool { return false }

// IsComment reports whether the event holds nothing but comments and blank lines, as keep-alives do.
func (e Event) IsComment() bool { return false }

// ErrEventTooLong says that an event passed the limit of [Events].
var ErrEventTooLong = errors.New("server-sent event too long")

// Events cuts a stream into events, however the bytes were split. The zero value is ready. Not safe for concurrent use.
type Events struct {
	Limit int // bytes of one event, default 16 MiB
}

// Feed yields the events that chunk completes. An event is valid until the next one is asked for and shares chunk's memory when it lies whole in it.
func (s *Events) Feed(chunk []byte) iter.Seq[Event] { return func(func(Event) bool) {} }

// Pending returns the bytes of the event that is not complete yet.
func (s *Events) Pending() []byte { return nil }

// Err returns ErrEventTooLong once an event was; nothing is yielded from then on.
func (s *Events) Err() error { return nil }

// HasError reports whether data (JSON) is an engine's error and with which code, 500 when it names none.
func HasError(data []byte) (code int, ok bool) { return 0, false }

// HasContent reports whether data (JSON of one chunk) carries generated output. A chat's role chunk does not.
func HasContent(data []byte) bool { return false }

// UsageOnly reports whether data is the usage chunk at the end of a stream: usage, and no choices.
func UsageOnly(data []byte) bool { return false }

// Usage is what an answer says about tokens.
type Usage struct {
	Prompt, Completion int
	Cached             int // -1 when not said
}

// ReadUsage reads the usage of a body or of a chunk's data.
func ReadUsage(data []byte) (Usage, bool) { return Usage{}, false }

// PatchUsage appends data, a body, a chunk's data or a whole event, to dst with usage.prompt_tokens_details.cached_tokens set to cached.
// Without that object nothing is appended and ok is false.
func PatchUsage(dst, data []byte, cached int) (out []byte, ok bool) { return dst, false }

// Scrub appends an engine's answer (a body, a chunk's data or a whole event) to dst with the values of transfer params made null.
func Scrub(dst, data []byte) []byte { return append(dst, data...) }

// NeedsScrub reports whether data may hold transfer params, so that a stream can pass its chunks on without copying.
func NeedsScrub(data []byte) bool { return false }

// PrefillAnswer is what leg 1 said.
type PrefillAnswer struct {
	Params         []byte // raw kv_transfer_params, nil when null or absent
	PromptTokens   int    // 0 when not said
	CachedTokens   int    // -1 when not said
	FinishReason   string
	PromptTokenIDs []uint32 // with return_token_ids, else nil
	PromptIDsRaw   []byte   // the array they were read from
}

// ReadPrefill reads the answer of leg 1. Its slices share body's memory.
func ReadPrefill(body []byte) (PrefillAnswer, error) { return PrefillAnswer{}, errTodo }

// MergeAnswers makes one answer of those to each prompt of a batch: choices in order, usage summed, the first answer's other fields, id when it is not "".
func MergeAnswers(answers [][]byte, id string) ([]byte, error) { return nil, errTodo }

// RewriteChunk appends a stream chunk's data to dst with its id and the index of its choices set, and without transfer params.
func RewriteChunk(dst, data []byte, id string, index int) []byte { return dst }

// UsageSum adds up the usage chunks of a batch's streams. The zero value is ready.
type UsageSum struct{}

// Add takes data, a copy of which it keeps, and reports whether it was a usage chunk, which must then not go to the client.
func (u *UsageSum) Add(data []byte) bool { return false }

// Append appends the data of the one usage chunk for the client, nothing when none was added.
func (u *UsageSum) Append(dst []byte, id string) []byte { return dst }

// AppendError appends an error body in vLLM's shape; param "" is null.
func AppendError(dst []byte, message, typ, param string, code int) []byte { return dst }

// Package openai reads and edits OpenAI-shaped requests and answers by byte range: unedited parts stay equal
// byte for byte.
//
// A request is scanned once ([Parse]); its two legs are edits of the request ([Request.Edit],
// [Request.PrefillIDs], [Request.PrefillBody]). Answers and streams are cut into events ([Events]) and
// changed only where needed ([Kind.Find], [Scrub], [RewriteChunk]). Nothing here starts goroutines or keeps
// state between calls, and no error contains any part of a prompt.
package openai

// Kind says which API a request came through.
type Kind uint8

// The kinds that are read. Everything else passes through [Sanitize].
const (
	Chat Kind = iota + 1
	Completions
	Messages  // Anthropic's
	Responses // without built-in tools and without what one engine keeps from earlier
)

// Path returns the engine's path for the kind.
func (k Kind) Path() string {
	return [...]string{"", "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}[min(k,
		Responses)]
}

// Limits bounds what [Parse] and [Sanitize] accept; a zero field takes its default. The size of the body is
// the caller's to bound.
type Limits struct {
	Depth        int // nesting of arrays and objects, default 128
	Fields       int // members of the top-level object, default 1024
	PromptTokens int // token ids in all prompts together, default no bound
	Prompts      int // prompts of a batch that are split; a larger batch is Unsplittable, default 128
	Samples      int // answers that a request may ask for (n, best_of), default no bound
}

// Request is a client's request after one scan. It is read-only once parsed and safe for concurrent use; its
// slices point into Raw.
//
// Long: a field a fact that the scan found.
type Request struct {
	Kind            Kind
	Raw             []byte // the body without transfer params; shares the caller's memory when nothing had to go
	Model           string // as the client named it, "" when it did not
	Stream          bool
	IncludeUsage    bool // stream_options.include_usage
	ContinuousUsage bool // stream_options.continuous_usage_stats
	// It is a stream of one answer, the client did not ask for usage, and the engine can be asked for usage:
	// [Edit.AskUsage].
	MayAskUsage bool
	// New tokens at most, 0 when unlimited. On chat max_completion_tokens wins. A completion without a limit
	// gets 16, as in vLLM. For responses it is max_output_tokens.
	MaxTokens int
	N         int // sequences, at least 1
	CacheSalt string
	Prompts   []Prompt // of a completion, in order; nil on chat and for a batch above Limits.Prompts
	Batched   bool     // more than one prompt
	InBatch   int      // number of prompts in a list; also where Prompts is nil
	// The engine computes the whole prompt, including cached blocks: its answer contains something about each
	// token of the prompt.
	Uncached     bool
	Unsplittable string // why the request must go whole to one replica, "" when it may be split
	Acts         bool   // its engine may run tools for it, or continue it after the client has left
	Removed      int    // transfer params that the client sent and Parse took out

	Messages   []byte // raw JSON array of a chat or of messages; the raw input of responses
	Tools      bool   // tools or functions that are not empty
	Multimodal bool   // a content part that is not text
	// A field other than messages takes part in making the prompt (tools, template, its arguments, documents,
	// ...).
	Templated bool
	Hints     Hints

	fields []field // members of the top-level object of Raw
	object span    // the top-level object with its braces

	fewFields [16]field // memory of fields, enough for most requests
	onePrompt [1]Prompt // memory of Prompts, which is one nearly always
}

// Prompt is one prompt of a completion: text or token ids, never both.
type Prompt struct {
	Text   []byte   // raw JSON string with its quotes, nil when the prompt is ids
	IDs    []uint32 // token ids, nil when the prompt is text
	IDsRaw []byte   // a JSON array of the ids, without points and exponents
}

// BadRequest is a body that no engine should see. Message never quotes the body.
type BadRequest struct {
	Message string
	Param   string // the field at fault, "" when it is the body as a whole
}

func (e *BadRequest) Error() string { return e.Message }

// Append appends the answer for the client, in vLLM's shape with code 400.
func (e *BadRequest) Append(dst []byte) []byte {
	return AppendError(dst, e.Message, "BadRequestError", e.Param, 400)
}

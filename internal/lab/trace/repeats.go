package trace

import "time"

// Repeats counts the calls of a trace that repeat an earlier call, and the answers that a cache without a
// memory limit could give. A trace does not have the texts. Two prompts are certainly the same only if all
// their tokens are in named blocks. Temperatures and other fields are unknown. So the counts are upper
// bounds.
type Repeats struct {
	Calls int
	Named int // calls in which some block has a name
	Equal int // Named calls with the model, the length and all names of an earlier call
	Sure  int // Equal calls whose last tokens have a name, too
	// Of Equal: those with an answer as long as that of the earlier one, as the same question has where nothing
	// is drawn by chance.
	Alike int
	// Of Alike: those that came while an answer is kept, and may not call tools. Calls of sessions whose times
	// are not recorded count as if no answer were ever too old.
	Hits int

	Prompt, HitPrompt int // tokens of all prompts, and of the prompts of Hits
	Answer, HitAnswer int
}

// repeated is a question in a trace.
type repeated struct {
	blocks uint64
	input  int
	model  string
}

// keptAnswer is an answer in the imagined cache.
type keptAnswer struct {
	at     time.Duration
	output int
}

// Repeating counts the repeats of sessions, in their order, where answers are kept for ttl.
func Repeating(sessions []*Session, ttl time.Duration) (r Repeats) {
	kept := map[repeated]keptAnswer{}
	var ids []uint64
	for _, s := range sessions {
		for i := range s.Calls {
			c := &s.Calls[i]
			ids = s.AppendBlocks(ids[:0], i)
			r.Calls++
			r.Prompt += c.Input
			r.Answer += c.Output
			if len(ids) == 0 {
				continue
			}
			r.Named++
			name := repeated{input: c.Input, model: c.Model}
			for _, id := range ids {
				name.blocks = mix(name.blocks, id)
			}
			at := s.At + c.Think
			earlier, known := kept[name]
			fresh := !s.Timed || at-earlier.at <= ttl
			if known {
				r.repeat(c, c.Input <= len(ids)*s.BlockSize, earlier.output == c.Output, fresh)
			}
			if !known || earlier.output != c.Output || !fresh {
				kept[name] = keptAnswer{at: at, output: c.Output}
			}
		}
	}
	return r
}

// repeat counts one call.
func (r *Repeats) repeat(c *Call, sure, alike, fresh bool) {
	r.Equal++
	if sure {
		r.Sure++
	}
	if alike {
		r.Alike++
	}
	if alike && fresh && !c.Asked.Tools {
		r.Hits++
		r.HitPrompt += c.Input
		r.HitAnswer += c.Output
	}
}

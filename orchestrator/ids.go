package orchestrator

import (
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/tokenizer"
)

// promptIDs holds the token ids of a prompt, and their origin. The ids name the prompt's blocks for the
// index, where wrong ids cost only prefix hits. Only [promptIDs.legs] puts ids into a leg.
type promptIDs struct {
	legIDs                  // the JSON is made at the first use
	of      replica.Release // the release whose tokenizer and template made the ids
	clients bool            // the client sent the ids: every engine takes them as the prompt
	exact   bool            // an engine of the release would make the same ids from the request
}

// legIDs holds token ids that both legs of a pair carry.
type legIDs struct {
	list []uint32
	json []byte // the same
}

// newPromptIDs returns nil if no ids are known.
func newPromptIDs(r *tokenizer.Result, own *openai.Prompt) *promptIDs {
	if len(r.IDs) == 0 {
		return nil
	}
	ids := &promptIDs{legIDs: legIDs{list: r.IDs}, of: r.Of, exact: r.Exact}
	if r.Source == tokenizer.Client {
		ids.clients, ids.json = true, own.IDsRaw
	}
	return ids
}

// legs returns the ids for the two legs of a pair with the decode replica d; nil if d itself would make other
// ids. The prefill replica computes any ids that it gets, and the planner makes sure that d can use its
// blocks.
func (p *promptIDs) legs(d *replica.Replica) *legIDs {
	if p == nil || !p.exact || !p.clients && !p.of.Agrees(d.Release()) {
		return nil
	}
	if p.json == nil {
		p.json = openai.AppendIDs(nil, p.list)
	}
	return &p.legIDs
}

// reuses reports whether an engine takes the prompt's ids on the decode leg of a request of this kind.
func reuses(f *replica.Facts, kind openai.Kind) bool {
	switch kind {
	case openai.Chat:
		return f.ReuseIDs
	case openai.Messages:
		return f.ReuseOther.Messages
	case openai.Responses:
		return f.ReuseOther.Responses
	}
	return true
}

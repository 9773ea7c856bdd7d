package enginesim

import "github.com/tandem-router/tandem/internal/rawjson"

const done = "data: [DONE]\n\n"

// completions answers POST /v1/completions.
func (s *Server) completions(k *call) {
	p := newParams(atCompletions)
	defer p.release()
	g := s.beginTemplated(k, p, "cmpl-")
	if g == nil {
		return
	}
	defer g.end()
	if p.stream {
		g.streamCompletions(k)
		return
	}
	if bad := g.collect(); bad != nil {
		k.refuse(bad)
		return
	}
	k.part = g.appendCompletion(k.part[:0])
	s.respondORCA(k, k.part)
}

// refuse answers with an error, or with nothing if the process is gone.
func (k *call) refuse(bad *problem) {
	if bad == restarted {
		k.broken = true
		k.out = k.out[:0]
		return
	}
	k.failWith(bad)
}

// appendCompletion writes the whole answer.
func (g *generation) appendCompletion(dst []byte) []byte {
	dst = g.appendHead(dst, "text_completion")
	dst = append(dst, `,"choices":[`...)
	for i := range g.seqs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = g.appendCompletionChoice(dst, i)
	}
	dst = append(dst, `],"service_tier":null,"system_fingerprint":`...)
	dst = g.srv.appendFingerprint(dst)
	dst = append(dst, `,"usage":`...)
	dst = g.appendUsage(dst)
	dst = append(dst, `,"kv_transfer_params":`...)
	dst = appendParams(dst, g.seqs[0].params)
	return append(dst, `,"ec_transfer_params":null,"metrics":null}`...)
}

// appendHead writes the start of an OpenAI object, up to its model.
func (g *generation) appendHead(dst []byte, object string) []byte {
	dst = append(append(append(dst, `{"id":"`...), g.id...), `","object":"`...)
	dst = append(append(dst, object...), `","created":`...)
	dst = append(appendInt(dst, int(g.created)), `,"model":`...)
	return rawjson.AppendString(dst, g.modelName())
}

func (g *generation) modelName() string {
	if g.p.model == "" {
		return g.srv.o.Model
	}
	return g.p.model
}

func (g *generation) appendCompletionChoice(dst []byte, i int) []byte {
	q := &g.seqs[i]
	dst = append(appendInt(append(dst, `{"index":`...), i), `,"text":`...)
	dst = rawjson.AppendString(dst, g.whole(q))
	dst = append(dst, `,"logprobs":`...)
	dst = g.appendTextLogprobs(dst, q, 0)
	dst = append(dst, `,"finish_reason":`...)
	dst = appendNullable(dst, q.finished.reason)
	dst = append(dst, `,"stop_reason":`...)
	dst = q.appendStop(dst)
	dst = append(dst, `,"token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, q.tokens)
	dst = append(dst, `,"prompt_logprobs":`...)
	dst = g.appendPromptLogprobs(dst, q)
	dst = append(dst, `,"prompt_token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, q.prompt)
	return append(dst, `,"routed_experts":null}`...)
}

// whole returns the text of an answer. With echo, the prompt comes first.
func (g *generation) whole(q *sequence) string {
	if g.p.echo && g.p.asked == 0 {
		return "" // max_tokens 0: same as real vLLM
	}
	if g.p.echo {
		return g.srv.model.voc.detokenize(q.prompt) + string(q.text)
	}
	return string(q.text)
}

func appendIDsIf(dst []byte, want bool, ids []uint32) []byte {
	if !want {
		return append(dst, "null"...)
	}
	return rawjson.AppendIDs(dst, ids)
}

func appendParams(dst, params []byte) []byte {
	if params == nil {
		return append(dst, "null"...)
	}
	return append(dst, params...)
}

// appendStop writes stop_reason: a string, a token id or null.
func (q *sequence) appendStop(dst []byte) []byte {
	if q.finished.byID {
		return appendInt(dst, int(q.finished.stopID))
	}
	return appendNullable(dst, q.finished.stop)
}

// appendUsage writes the usage of a whole answer, including nulls.
func (g *generation) appendUsage(dst []byte) []byte {
	dst, cached := g.appendCounts(dst)
	if g.srv.o.NoUsageDetails {
		return append(dst, `,"prompt_tokens_details":null,"completion_tokens_details":null}`...)
	}
	dst = appendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), cached)
	dst = append(dst, `,"created_cache_tokens":`...)
	if g.p.at == atChat {
		dst = appendInt(dst, g.newlyCached())
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, `,"multimodal_tokens":null},"completion_tokens_details":null}`...)
}

// newlyCached returns the number of prompt tokens, in whole blocks, that this request added to the prefix
// cache. It is 0 after a transfer or without a prefix cache.
func (g *generation) newlyCached() int {
	if t := g.p.transfer; t != nil && bool(t.DoRemotePrefill) || g.rank.cfg.NoPrefixCaching {
		return 0
	}
	size := g.rank.cfg.BlockSize
	q := &g.seqs[0]
	return max(len(q.prompt)/size*size-q.cached, 0)
}

func (g *generation) appendCounts(dst []byte) ([]byte, int) {
	prompt, completion, cached := g.usage()
	dst = appendInt(append(dst, `{"prompt_tokens":`...), prompt)
	dst = appendInt(append(dst, `,"total_tokens":`...), prompt+completion)
	return appendInt(append(dst, `,"completion_tokens":`...), completion), cached
}

// appendStreamUsage writes the usage of a chunk, without nulls.
func (g *generation) appendStreamUsage(dst []byte) []byte {
	dst, cached := g.appendCounts(dst)
	if g.srv.o.NoUsageDetails {
		return append(dst, '}')
	}
	dst = appendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), cached)
	if g.p.at == atChat {
		dst = appendInt(append(dst, `,"created_cache_tokens":`...), g.newlyCached())
	}
	return append(dst, "}}"...)
}

func (g *generation) streamCompletions(k *call) {
	g.endStream(k, g.streamChunks(k, g.appendCompletionChunk))
}

// streamChunks sends one chunk per token, and all chunks of one wake-up in one write. It reports whether
// nothing was sent.
func (g *generation) streamChunks(
	k *call, chunk func(dst []byte, d *delivery, q *sequence) []byte,
) (first bool) {
	first = true
	for g.next() && !k.broken {
		for i := range g.got {
			d := &g.got[i]
			q, ok := g.absorb(d)
			if !ok {
				continue
			}
			if first {
				k.stream()
				first = false
			}
			k.part = chunk(k.part[:0], d, q)
			k.event(k.part)
		}
		if g.ending.problem == nil {
			k.flush()
		}
	}
	return first
}

// endStream ends an OpenAI stream with an error event or, if requested, with the usage.
func (g *generation) endStream(k *call, first bool) {
	if g.ending.vanished || k.broken {
		k.broken = true
		return
	}
	if first {
		k.stream()
	}
	switch {
	case g.ending.problem != nil:
		k.part = append(appendSpacedError(append(k.part[:0], "data: "...), g.ending.problem), "\n\n"...)
		k.event(k.part)
	case g.p.usage:
		k.part = g.appendUsageChunk(k.part[:0])
		k.event(k.part)
	}
	k.event([]byte(done))
}

func (g *generation) appendUsageChunk(dst []byte) []byte {
	dst = g.appendHead(append(dst, "data: "...), g.chunkObject())
	dst = g.appendStreamUsage(append(dst, `,"choices":[],"usage":`...))
	return append(g.appendStreamFingerprint(dst), "}\n\n"...)
}

// appendChunkEnd writes the part of a chunk behind the choice.
func (g *generation) appendChunkEnd(dst []byte, q *sequence) []byte {
	dst = g.appendContinuous(dst, q)
	if q.finished.reason != "" && !g.p.usage {
		dst = g.appendStreamFingerprint(dst)
	}
	return append(dst, "}\n\n"...)
}

// appendContinuous writes the usage so far, if the request asked for usage in every chunk.
func (g *generation) appendContinuous(dst []byte, q *sequence) []byte {
	if !g.p.continuous || !g.p.usage {
		return dst
	}
	prompt, completion := len(q.prompt)+g.over, len(q.tokens)
	dst = appendInt(append(dst, `,"usage":{"prompt_tokens":`...), prompt)
	dst = appendInt(append(dst, `,"total_tokens":`...), prompt+completion)
	dst = appendInt(append(dst, `,"completion_tokens":`...), completion)
	if g.p.at == atChat && g.srv.process.versionAtLeast(28) {
		dst = append(dst, `,"completion_tokens_details":null`...)
	}
	return append(dst, '}')
}

// appendStreamFingerprint writes system_fingerprint. Only the last message of a stream has it: the usage
// chunk if there is one, else the chunk with the finish reason (vLLM 0.32.0, chat_completion/serving.py and
// completion/serving.py).
func (g *generation) appendStreamFingerprint(dst []byte) []byte {
	if !g.srv.process.fingerprints() {
		return dst
	}
	return g.srv.appendFingerprint(append(dst, `,"system_fingerprint":`...))
}

func (g *generation) chunkObject() string {
	if g.p.at == atChat {
		return "chat.completion.chunk"
	}
	return "text_completion"
}

func (g *generation) appendCompletionChunk(dst []byte, d *delivery, q *sequence) []byte {
	firstToken := len(q.tokens) == 1
	from := q.sent
	text := g.fresh(q)
	if g.p.echo && firstToken {
		text = g.srv.model.voc.detokenize(q.prompt) + text
	}
	dst = g.appendHead(append(dst, "data: "...), "text_completion")
	dst = append(appendInt(append(dst, `,"choices":[{"index":`...), d.seq), `,"text":`...)
	dst = rawjson.AppendString(dst, text)
	dst = append(dst, `,"logprobs":`...)
	dst = g.appendTokenLogprobs(dst, d.out.Token, from)
	dst = append(dst, `,"finish_reason":`...)
	dst = appendNullable(dst, q.finished.reason)
	dst = append(dst, `,"stop_reason":`...)
	dst = q.appendStop(dst)
	dst = append(dst, `,"prompt_token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs && firstToken, q.prompt)
	dst = append(dst, `,"token_ids":`...)
	dst = appendIDsIf(dst, g.p.returnIDs, q.last())
	return g.appendChunkEnd(append(dst, "}]"...), q)
}

func comma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

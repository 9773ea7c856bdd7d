package main

import (
	"context"
	"encoding/json"
)

// several prefills several prompts before it reads the first, and reads them in another order.
func (w *workload) several(ctx context.Context) error {
	var seconds []wish
	var params [][2]map[string]json.RawMessage
	var blocks []int
	held := 0
	for range 2 + w.rnd.IntN(3) {
		second := w.completion(w.d, w.ids(1+w.rnd.IntN(200)), w.output())
		p, n, err := w.prefill(ctx, second)
		if err != nil {
			return err
		}
		held += n
		seconds = append(seconds, second)
		params = append(params, p)
		blocks = append(blocks, n)
	}
	w.split += len(seconds)
	if err := w.holds(ctx, w.p, held); err != nil {
		return err
	}
	if err := w.plain(ctx, w.p); err != nil {
		return err
	}
	for _, i := range w.rnd.Perm(len(seconds)) {
		if _, err := w.both(ctx, seconds[i], params[i]); err != nil {
			return err
		}
		held -= blocks[i]
		if err := w.holds(ctx, w.p, held); err != nil {
			return err
		}
	}
	return nil
}

// refused is a second leg that the decode server refuses: it tells the prefill server that the blocks are not
// needed.
func (w *workload) refused(ctx context.Context) error {
	second := w.completion(w.d, w.prompt(300), 2)
	params, blocks, err := w.prefill(ctx, second)
	if err != nil {
		return err
	}
	if err := w.holds(ctx, w.p, blocks); err != nil {
		return err
	}
	second.body["model"] = "there is no such model"
	if _, err = w.both(ctx, second, params); err != nil {
		return err
	}
	return w.holds(ctx, w.p, 0)
}

// otherAPI is an un-split request through another API. Its tokens cannot be prescribed, so it generates one
// token, which fills no block.
func (w *workload) otherAPI(ctx context.Context) error {
	at := []*twin{w.p, w.d}[w.rnd.IntN(2)]
	ids := w.prompt(400)
	params := map[string]any{"prompt_token_ids": ids}
	q := w.asChat(w.completion(at, ids, w.output()))
	switch w.rnd.IntN(4) {
	case 0:
		q = wish{at, "/v1/messages", map[string]any{
			"model": modelName, "messages": []map[string]any{message("user", "unread")}, "max_tokens": 1,
			"temperature": 0, "kv_transfer_params": params,
		}}
	case 1:
		q = wish{at, "/v1/responses", map[string]any{
			"model": modelName, "input": "unread", "max_output_tokens": 1, "temperature": 0,
			"kv_transfer_params": params,
		}}
	case 2:
		q = wish{at, "/inference/v1/generate", map[string]any{
			"model": modelName, "token_ids": ids, "sampling_params": map[string]any{
				"max_tokens": 1 + w.rnd.IntN(40), "temperature": 0, "ignore_eos": true,
				"allowed_token_ids": []int{401},
			},
		}}
	}
	_, err := w.both(ctx, q, [2]map[string]json.RawMessage{})
	return err
}

// limit is a prompt at the end of the context, or over it: the answer is as long as the remaining context.
func (w *workload) limit(ctx context.Context) error {
	n := contextTokens - 2 + w.rnd.IntN(5)
	_, err := w.both(ctx, w.completion(w.p, w.ids(n), 5), [2]map[string]json.RawMessage{})
	return err
}

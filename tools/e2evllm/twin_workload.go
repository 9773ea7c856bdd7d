package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A workload consists of ids, because a simulated engine has neither the tokenizer nor the model of the real
// one. The generated tokens are prescribed (allowed_token_ids), so that even their blocks are the same on
// both.

// wish is one request of the workload.
type wish struct {
	at   *twin
	path string
	body map[string]any
}

// both sends a wish to the two engines of a twin at once, each with the transfer parameters of its own peer,
// and compares the answers.
func (w *workload) both(
	ctx context.Context, q wish, params [2]map[string]json.RawMessage,
) ([2]twinAnswer, error) {
	var got [2]twinAnswer
	var errs [2]error
	var wg sync.WaitGroup
	for i := range got {
		body := q.body
		if params[i] != nil {
			body = withParams(body, params[i])
		}
		wg.Go(func() { got[i], errs[i] = askTwin(ctx, q.at.urls[i]+q.path, body) })
	}
	wg.Wait()
	w.asked++
	w.note(q)
	for i, err := range errs {
		if err != nil {
			return got, fmt.Errorf("request %d, %s of %s: %w", w.asked, twinSides[i], q.at.name, err)
		}
	}
	r, s := got[0], got[1]
	if r.status != s.status || r.usage != s.usage || r.finish != s.finish ||
		(r.params == nil) != (s.params == nil) {
		w.differ("request %d, %s of %s: real %s; simulated %s", w.asked, q.path, q.at.name, r, s)
	}
	return got, nil
}

// note keeps the request, and the number of batches of events from the simulated engine so far.
func (w *workload) note(q wish) {
	if q.at.ears[1] == nil {
		return
	}
	ids, _ := q.body["prompt"].([]int)
	rest := maps.Clone(q.body)
	for _, key := range []string{"prompt", "model", "messages", "kv_transfer_params", "token_ids"} {
		delete(rest, key)
	}
	w.notes = append(w.notes, fmt.Sprintf("%s, batch %d: request %d, %s, %d ids, %v",
		q.at.name, q.at.ears[1].count(), w.asked, q.path, len(ids), rest))
}

// workload plays requests and counts the differences of the two kinds.
type workload struct {
	p, d    *twin
	rnd     *rand.Rand
	roots   [][]int  // beginnings that prompts share
	notes   []string // a line a request, to find the request that made the difference
	asked   int
	split   int
	streams int
	parted  []string // the first differences
	count   int      // of differences
}

func newWorkload(p, d *twin, seed uint64) *workload {
	w := &workload{p: p, d: d, rnd: rand.New(rand.NewPCG(seed, 77))}
	for range 5 {
		w.roots = append(w.roots, w.ids(620))
	}
	return w
}

// differ notes a difference. Only the first few are kept.
func (w *workload) differ(format string, args ...any) {
	if w.count++; len(w.parted) < 12 {
		w.parted = append(w.parted, fmt.Sprintf(format, args...))
	}
}

func (w *workload) ids(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 300 + w.rnd.IntN(1700)
	}
	return ids
}

// prompt is a shared beginning, of any length and often of whole blocks, followed by unique tokens.
func (w *workload) prompt(longest int) []int {
	shared := w.rnd.IntN(longest)
	if w.rnd.IntN(3) > 0 {
		shared = shared / blockTokens * blockTokens
	}
	own := []int{0, 1, 5, blockTokens - 1, blockTokens, blockTokens + 1, 70, 130}[w.rnd.IntN(8)]
	ids := append(slices.Clone(w.roots[w.rnd.IntN(len(w.roots))][:shared]), w.ids(own)...)
	if len(ids) == 0 {
		return w.ids(3)
	}
	return ids
}

// next plays one more piece.
func (w *workload) next(ctx context.Context) error {
	switch n := w.rnd.IntN(100); {
	case n < 22:
		return w.plain(ctx, w.p)
	case n < 40:
		return w.plain(ctx, w.d)
	case n < 74:
		return w.pair(ctx)
	case n < 80:
		return w.several(ctx)
	case n < 85:
		return w.refused(ctx)
	case n < 97:
		return w.otherAPI(ctx)
	}
	return w.limit(ctx)
}

// fill stores every block of the caches twice with prompts that both engines get. That evicts the old
// content, and the new content will be evicted in the same order.
func (w *workload) fill(ctx context.Context, at *twin) error {
	const long = contextTokens - 2*blockTokens
	for taken := 0; taken < 2*at.blocks*blockTokens; taken += long {
		if _, err := w.both(ctx,
			wish{at, completions, map[string]any{"model": modelName, "prompt": w.ids(long), "max_tokens": 1}},
			[2]map[string]json.RawMessage{}); err != nil {
			return err
		}
	}
	return nil
}

// completion is a request for n prescribed tokens.
func (w *workload) completion(at *twin, ids []int, n int) wish {
	body := map[string]any{
		"model": modelName, "prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": true,
		"allowed_token_ids": []int{400 + w.rnd.IntN(4)},
	}
	if w.rnd.IntN(4) == 0 {
		body["cache_salt"] = fmt.Sprint("tenant", w.rnd.IntN(2))
	}
	if w.rnd.IntN(3) == 0 {
		w.streamed(body)
	}
	return wish{at, completions, body}
}

func (w *workload) streamed(body map[string]any) {
	w.streams++
	body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
}

func (w *workload) output() int { return []int{1, 1, 2, 9, 33, 50}[w.rnd.IntN(6)] }

// plain is a request that is not split.
func (w *workload) plain(ctx context.Context, at *twin) error {
	q := w.completion(at, w.prompt(500), w.output())
	switch w.rnd.IntN(12) {
	case 0:
		if q.body["stream"] == nil {
			q.body["prompt_logprobs"] = 0 // computes all of its prompt again
		}
	case 1:
		q.body["truncate_prompt_tokens"] = 40
	}
	_, err := w.both(ctx, q, [2]map[string]json.RawMessage{})
	return err
}

// prefillParams ask a prefill server to keep what it computes.
func prefillParams() map[string]any {
	return map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil,
		"remote_block_ids": nil,
		"remote_host":      nil, "remote_port": nil,
	}
}

// prefill plays the first leg, and returns the number of kept blocks.
func (w *workload) prefill(
	ctx context.Context, second wish,
) (params [2]map[string]json.RawMessage, blocks int, err error) {
	body := map[string]any{
		"model": modelName, "prompt": second.body["prompt"], "max_tokens": 1, "temperature": 0,
		"kv_transfer_params": prefillParams(),
	}
	if salt, ok := second.body["cache_salt"]; ok {
		body["cache_salt"] = salt
	}
	got, err := w.both(ctx, wish{w.p, completions, body}, params)
	if err != nil {
		return params, 0, err
	}
	for i := range got {
		var ids [][]int
		if err := json.Unmarshal(got[i].params["remote_block_ids"], &ids); err != nil || len(ids) != 1 {
			return params, 0, fmt.Errorf("%s of %s: params %s: %w",
				twinSides[i], w.p.name, got[i].params["remote_block_ids"], err)
		}
		params[i], blocks = got[i].params, len(ids[0])
	}
	for key, value := range params[0] {
		switch key {
		case "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host", "remote_port":
		default:
			if got := string(params[1][key]); got != string(value) {
				w.differ("request %d, %s is %s, simulated %s", w.asked, key, value, got)
			}
		}
	}
	return params, blocks, nil
}

// pair is a split request.
func (w *workload) pair(ctx context.Context) error {
	second := w.completion(w.d, w.prompt(500), w.output())
	params, blocks, err := w.prefill(ctx, second)
	if err != nil {
		return err
	}
	w.split++
	if err := w.holds(ctx, w.p, blocks); err != nil {
		return err
	}
	if w.rnd.IntN(4) == 0 {
		second = w.asChat(second)
	}
	if _, err = w.both(ctx, second, params); err != nil {
		return err
	}
	return w.holds(ctx, w.p, 0)
}

// asChat is the same request through the chat API, with ids in the parameters.
func (w *workload) asChat(q wish) wish {
	body := map[string]any{
		"messages":           []map[string]any{message("user", "unread")},
		"kv_transfer_params": map[string]any{"prompt_token_ids": q.body["prompt"]},
	}
	for k, v := range q.body {
		if k != "prompt" {
			body[k] = v
		}
	}
	return wish{q.at, chat, body}
}

// holds waits until requests and leases hold this many blocks of both engines. An engine may report its load
// a step late.
func (w *workload) holds(ctx context.Context, at *twin, blocks int) error {
	want := float64(blocks) / float64(at.blocks-1)
	for i := range at.urls {
		var used float64
		err := eventually(ctx, 5*time.Second, func() (err error) {
			if used, err = at.usage(ctx, i); err == nil && (used < want-1e-9 || used > want+1e-9) {
				err = fmt.Errorf("%.4f of the blocks in use instead of %.4f", used, want)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("request %d, %s of %s: %w", w.asked, twinSides[i], at.name, err)
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// dyingAnswer is the number of tokens in an answer that loses its engine: the first answer is still in
// mid-stream when the last one begins.
const dyingAnswer = 120

// dyingKinds are greedy answers of the two APIs whose streams can continue. The prompts are new, share a
// beginning, or are turns of a chat. The answers end at a token limit or at a stop string. Two are not
// streamed.
var dyingKinds = []func(context.Context, *dying) (request, error){
	plainly(func(d *dying) request { return d.ids(slices.Concat(beginning, d.g.ids(40))) }),
	plainly(func(d *dying) request { return d.chat(message("user", d.g.text(12))) }),
	plainly(func(d *dying) request { return less(d.ids(d.g.ids(150)), "return_token_ids") }),
	plainly(func(d *dying) request {
		return unstreamed(d.ids(slices.Concat(beginning[:3*blockTokens], d.g.ids(20))))
	}),
	plainly(func(d *dying) request {
		asked, answered := message("user", d.g.text(7)), message("assistant", d.g.text(9))
		return d.chat(message("system", d.g.system), asked, answered, message("user", d.g.text(5)))
	}),
	func(ctx context.Context, d *dying) (request, error) { return d.stopped(ctx, d.ids(d.g.ids(37))) },
	plainly(func(d *dying) request { return unstreamed(d.chat(message("user", d.g.text(30)))) }),
	func(ctx context.Context, d *dying) (request, error) {
		return d.stopped(ctx, d.chat(message("user", d.g.text(20))))
	},
}

func plainly(q func(*dying) request) func(context.Context, *dying) (request, error) {
	return func(_ context.Context, d *dying) (request, error) { return q(d), nil }
}

// begin sends a request of each kind, the streams first, and returns when all streams have begun.
func (d *dying) begin(ctx context.Context) (begun []*flight, err error) {
	var streams, others []request
	for _, kind := range dyingKinds {
		q, err := kind(ctx, d)
		if err != nil {
			return nil, err
		}
		if q.body["stream"] == true {
			streams = append(streams, q)
		} else {
			others = append(others, q)
		}
	}
	for _, q := range streams {
		begun = append(begun, d.launch(ctx, d.router, "mid-stream", q))
	}
	for _, one := range begun {
		if err := awaitFirst(ctx, one, time.Minute); err != nil {
			return nil, err
		}
	}
	for _, q := range others {
		begun = append(begun, d.launch(ctx, d.router, "not streamed", q))
	}
	return begun, nil
}

func (d *dying) ids(prompt []int) request { return asStream(plainIDs(prompt, dyingAnswer)) }

func (d *dying) chat(turns ...map[string]any) request {
	return asStream(request{"chat", chat, map[string]any{
		"model": modelName, "messages": turns, "max_tokens": dyingAnswer,
		"temperature": 0, "ignore_eos": true,
	}})
}

func asStream(q request) request {
	q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
	return q
}

// unstreamed is a short answer: it starts again when its engine dies, and the next engine may die too.
func unstreamed(q request) request {
	q.body["max_tokens"] = dyingAnswer / 3
	return less(q, "stream", "stream_options")
}

func less(q request, names ...string) request {
	for _, name := range names {
		delete(q.body, name)
	}
	return q
}

// stopped ends the request at a stop string from the last third of the reference's answer, so that engines
// die before the stop string.
func (d *dying) stopped(ctx context.Context, q request) (request, error) {
	alone := tell(ctx, d.s.reference().url(), q, func() {})
	if alone.text == "" {
		return q, fmt.Errorf("no answer from the reference: %+v", alone)
	}
	if stop := lateString(alone.text); stop != "" {
		q.kind += ", stopped"
		q.body["stop"] = []string{stop}
	}
	return q, nil
}

// lateString is three plain characters that first appear in the last third of the text, or "".
func lateString(text string) string {
	for at := 2 * len(text) / 3; at+3 <= len(text); at++ {
		if s := text[at : at+3]; strings.Index(text, s) == at && !strings.ContainsFunc(s, notPlain) {
			return s
		}
	}
	return ""
}

func notPlain(r rune) bool { return r < ' ' || r > '~' }

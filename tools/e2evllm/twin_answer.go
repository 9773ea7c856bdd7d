package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
)

// twinAnswer is an engine's answer to a wish, without texts.
type twinAnswer struct {
	status int
	usage  string // the whole object, or those of all events
	finish string
	params map[string]json.RawMessage
}

func (t twinAnswer) String() string {
	return fmt.Sprintf("%d %s %s params %t", t.status, t.usage, t.finish, t.params != nil)
}

func withParams(body map[string]any, params map[string]json.RawMessage) map[string]any {
	more := map[string]any{}
	maps.Copy(more, body)
	all := map[string]any{}
	for k, v := range params {
		all[k] = v
	}
	if own, ok := body["kv_transfer_params"].(map[string]any); ok {
		maps.Copy(all, own)
	}
	more["kv_transfer_params"] = all
	return more
}

// askTwin sends a wish to one engine.
func askTwin(ctx context.Context, url string, body map[string]any) (twinAnswer, error) {
	resp, err := post(ctx, url, body)
	if err != nil {
		return twinAnswer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return twinAnswer{}, err
	}
	t := twinAnswer{status: resp.StatusCode}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return t, t.read(text)
	}
	for line := range bytes.Lines(text) {
		if event, ok := bytes.CutPrefix(line, []byte("data: {")); ok {
			if err := t.read(append([]byte("{"), event...)); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// read reads the compared fields of an answer or an event of any API.
func (t *twinAnswer) read(text []byte) error {
	type part struct {
		Usage   json.RawMessage            `json:"usage"`
		Params  map[string]json.RawMessage `json:"kv_transfer_params"`
		Stop    string                     `json:"stop_reason"`
		State   string                     `json:"status"`
		Choices []struct {
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	var a struct {
		part
		Response part            `json:"response"`
		Message  part            `json:"message"`
		Delta    part            `json:"delta"`
		Error    json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("%w: %.300s", err, text)
	}
	for _, p := range []part{a.part, a.Response, a.Message, a.Delta} {
		if len(p.Usage) > 0 && string(p.Usage) != "null" {
			t.usage += string(p.Usage)
		}
		if p.Params != nil {
			t.params = p.Params
		}
		t.finish += p.Stop + p.State
		for _, c := range p.Choices {
			t.finish += c.Finish
		}
	}
	if len(a.Error) > 0 {
		t.finish += " error " + string(a.Error)
	}
	return nil
}

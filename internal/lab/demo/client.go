package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/orchestrator/observe"
)

// outcome is one request as its client and the router saw it.
type outcome struct {
	who    string // conversation and turn; sent as X-Request-Id, by which the router finds the record
	text   string
	cached int
	prompt int
	ttft   time.Duration
	total  time.Duration
	wrong  string // why the answer is wrong, "" if it is right
	record *observe.Record
}

// talk holds conversations until no request is left or ctx ends.
func (h *house) talk(
	ctx context.Context, conversations iter.Seq[*conversation], show *screen, left *atomic.Int64,
) {
	for c := range conversations {
		for {
			maxTokens, more := c.ask()
			if !more {
				break
			}
			if ctx.Err() != nil || h.o.Requests > 0 && left.Add(-1) < 0 {
				return
			}
			r := h.check(ctx, c, maxTokens)
			if ctx.Err() != nil {
				return
			}
			show.line(r)
			c.answered(r.text)
		}
	}
}

// check sends the conversation's newest turn through the router and to the reference, and compares.
func (h *house) check(ctx context.Context, c *conversation, maxTokens int) *outcome {
	ctx, cancel := context.WithTimeout(ctx, h.o.Timeout)
	defer cancel()
	who := fmt.Sprintf("%s-%d", c.name, c.turn)
	r, err := stream(ctx, h.front, who, c.messages, maxTokens)
	if err != nil {
		return &outcome{who: who, wrong: err.Error()}
	}
	want, err := stream(ctx, h.reference.URL(), who, c.messages, maxTokens)
	switch {
	case err != nil:
		r.wrong = "reference: " + err.Error()
	case want.text != r.text:
		r.wrong = fmt.Sprintf("answered %.40q, one engine alone answers %.40q", r.text, want.text)
	case want.prompt != r.prompt:
		r.wrong = fmt.Sprintf("usage says %d prompt tokens, one engine alone says %d", r.prompt, want.prompt)
	}
	if r.record = h.record(ctx, who); r.record == nil && r.wrong == "" {
		r.wrong = "the router keeps no record of it"
	}
	return r
}

// record waits for the router's record of a request. The router writes it just after the client has the last
// byte.
func (h *house) record(ctx context.Context, id string) *observe.Record {
	for range 500 {
		if r := h.router.Record(id); r != nil {
			return r
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// stream sends one chat under an id and reads the streamed answer.
func stream(ctx context.Context, base, id string, messages []message, maxTokens int) (*outcome, error) {
	body, err := json.Marshal(map[string]any{
		"model": "demo-8b", "messages": messages, "max_tokens": maxTokens, "temperature": 0, "stream": true,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions",
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		return nil, fmt.Errorf("status %d: %.200s", resp.StatusCode, b.String())
	}
	r := &outcome{who: id}
	err = r.read(bufio.NewReader(resp.Body), start)
	r.total = time.Since(start)
	return r, err
}

// chunk has the fields of a stream's event that the demonstration reads.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// read reads the stream up to its end marker.
func (r *outcome) read(in *bufio.Reader, start time.Time) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the stream ended early: %w", err)
		}
		data, isData := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		switch {
		case !isData:
			continue
		case data == "[DONE]":
			return nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return err
		}
		if c.Error != nil {
			return errors.New(c.Error.Message)
		}
		r.take(&c, start)
	}
}

func (r *outcome) take(c *chunk, start time.Time) {
	for _, choice := range c.Choices {
		if choice.Delta.Content != "" && r.ttft == 0 {
			r.ttft = time.Since(start)
		}
		r.text += choice.Delta.Content
	}
	if c.Usage != nil {
		r.prompt = c.Usage.Prompt
		if c.Usage.Details != nil {
			r.cached = c.Usage.Details.Cached
		}
	}
}

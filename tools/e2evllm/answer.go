package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// answer is one answer as its client received it, streamed or not.
type answer struct {
	id      string // X-Request-Id
	mode    string // X-Tandem-Mode: split, local, unsplit; engines send none
	status  int
	refusal string   // the body, if the status is not 200
	choices []choice // by index
	usage   usage
	cached  int // cached prompt tokens, as reported; not compared: they depend on earlier requests

	// Of /v1/responses and /v1/messages:
	// The names of a stream's events in their order. Equal names in a row count once, because an engine may
	// join deltas.
	events string
	rest   string // everything else except ids, times and token counts
}

// choice is one of the texts, with all fields that describe how it was made.
type choice struct {
	text      string
	ids       []int // empty if the client did not ask for ids
	promptIDs []int
	finish    string
	stop      string
	logprobs  []logprob
	asked     []logprob // log-probabilities of the prompt's tokens
}

// logprob is the information about one token of the answer.
type logprob struct {
	token string
	value float64
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

type wireUsage struct {
	usage
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// wire is an answer of completions or chats, or one event of a stream.
type wire struct {
	ID      string          `json:"id"`
	Error   json.RawMessage `json:"error"`
	Usage   *wireUsage      `json:"usage"`
	Choices []wireChoice    `json:"choices"`
	Prompt  []int           `json:"prompt_token_ids"` // of chats
}

type wireChoice struct {
	Index    int             `json:"index"`
	Text     string          `json:"text"`
	Message  wireMessage     `json:"message"`
	Delta    wireMessage     `json:"delta"`
	IDs      []int           `json:"token_ids"`
	Prompt   []int           `json:"prompt_token_ids"`
	Finish   string          `json:"finish_reason"`
	Stop     json.RawMessage `json:"stop_reason"`
	Logprobs wireLogprobs    `json:"logprobs"`
	Asked    []promptLogprob `json:"prompt_logprobs"`
}

type wireMessage struct {
	Content string `json:"content"`
	Tools   []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (m *wireMessage) text() string {
	var text strings.Builder
	text.WriteString(m.Content)
	for _, t := range m.Tools {
		text.WriteString(t.Function.Name + t.Function.Arguments)
	}
	return text.String()
}

// promptLogprob is the information about one token of the prompt, by token id; null for the first token.
type promptLogprob map[string]struct {
	Value float64 `json:"logprob"`
}

// wireLogprobs is either of the two forms.
type wireLogprobs struct {
	Tokens  []string   `json:"tokens"`
	Values  []*float64 `json:"token_logprobs"` // null for the first token if the prompt is echoed
	Content []struct {
		Token string  `json:"token"`
		Value float64 `json:"logprob"`
	} `json:"content"`
}

// post sends a body as JSON, with header as "Name: value" lines beside. The caller closes the answer's body.
func post(ctx context.Context, url string, body any, header ...string) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	return client.Do(req)
}

// submit posts a body and reads any answer.
func submit(ctx context.Context, url string, body any) (int, []byte, error) {
	resp, err := post(ctx, url, body)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// ask sends a request to the server at base, with header lines as for [post], and reads the answer to its
// end.
func ask(ctx context.Context, base, path string, body map[string]any, header ...string) (answer, error) {
	resp, err := post(ctx, base+path, body, header...)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{
		id: resp.Header.Get("X-Request-Id"), mode: resp.Header.Get("X-Tandem-Mode"), status: resp.StatusCode,
	}
	if err := headerShows(resp.Header); err != nil {
		return a, err
	}
	return a, a.read(path, body["stream"] == true, resp)
}

// read reads the answer of the path's API, streamed or not, or a refusal.
func (a *answer) read(path string, stream bool, resp *http.Response) error {
	named := path == responses || path == messages
	switch {
	case stream && a.status == http.StatusOK && named:
		return a.readEvents(resp.Body)
	case stream && a.status == http.StatusOK:
		return a.readStream(resp.Body)
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = shows(text)
	}
	switch {
	case err != nil:
		return err
	case a.status != http.StatusOK:
		a.refusal = string(text)
		return nil
	case named:
		return a.readWhole(text)
	}
	_, err = a.add(text)
	return err
}

// inner has texts that no answer may show: transfer parameters, ids of engines and blocks, addresses of
// replicas.
var inner = regexp.MustCompile(
	`"\w+_transfer_params":\s*[^n\s]|remote_\w+"|do_remote|engine_id|block_ids|127\.0\.0\.1`,
)

func shows(data []byte) error {
	if found := inner.Find(data); found != nil {
		return fmt.Errorf("an answer shows %q: %.300s", found, data)
	}
	return nil
}

func headerShows(h http.Header) error {
	for key, values := range h {
		if err := shows([]byte(key + ": " + strings.Join(values, " "))); err != nil {
			return err
		}
	}
	return nil
}

// readStream adds one event after another. A stream has one id and ends with [DONE].
func (a *answer) readStream(r io.Reader) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 16<<20)
	ids := map[string]bool{}
	for scanner.Scan() {
		data, ok := bytes.CutPrefix(scanner.Bytes(), []byte("data: "))
		switch {
		case !ok && len(scanner.Bytes()) > 0:
			return fmt.Errorf("the stream has a line without data: %q", scanner.Text())
		case !ok:
			continue
		case string(data) == "[DONE]":
			if len(ids) != 1 {
				return fmt.Errorf("the events of a stream have %d ids", len(ids))
			}
			return nil
		}
		id, err := a.add(data)
		if err != nil {
			return err
		}
		ids[id] = true
	}
	return errors.Join(errors.New("the stream ended without [DONE]"), scanner.Err())
}

// add merges an answer or an event and returns its id.
func (a *answer) add(data []byte) (string, error) {
	if err := shows(data); err != nil {
		return "", err
	}
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return "", fmt.Errorf("%w: %.200s", err, data)
	}
	if len(w.Error) > 0 {
		return "", fmt.Errorf("an error inside a 200: %.300s", w.Error)
	}
	if w.Usage != nil {
		a.usage, a.cached = w.Usage.usage, w.Usage.Details.Cached
	}
	for _, c := range w.Choices {
		for len(a.choices) <= c.Index {
			a.choices = append(a.choices, choice{})
		}
		a.choices[c.Index].add(c, w.Prompt)
	}
	return w.ID, nil
}

func (c *choice) add(w wireChoice, prompt []int) {
	c.text += w.Text + w.Message.text() + w.Delta.text()
	c.ids = append(c.ids, w.IDs...)
	c.promptIDs = append(append(c.promptIDs, w.Prompt...), prompt...)
	c.finish += w.Finish
	if s := string(w.Stop); s != "" && s != "null" {
		c.stop += s
	}
	for i, t := range w.Logprobs.Tokens {
		l := logprob{token: t}
		if v := w.Logprobs.Values[i]; v != nil {
			l.value = *v
		}
		c.logprobs = append(c.logprobs, l)
	}
	for _, l := range w.Logprobs.Content {
		c.logprobs = append(c.logprobs, logprob{l.Token, l.Value})
	}
	for _, of := range w.Asked {
		for _, id := range slices.Sorted(maps.Keys(of)) {
			c.asked = append(c.asked, logprob{id, of[id].Value})
		}
	}
}

// closeEnough is the largest accepted difference between two computations of one log-probability: sums in
// another order differ in the last bits of a float32.
const closeEnough = 1e-3

// difference describes the differences between two answers, or is "".
func difference(got, want answer) string {
	var d []string
	differ := func(what string, same bool, got, want any) {
		if !same {
			d = append(d, fmt.Sprintf("%s is %.120v, alone it is %.120v", what, got, want))
		}
	}
	differ("the status", got.status == want.status, got.status, want.status)
	differ("the usage", got.usage == want.usage, got.usage, want.usage)
	differ("the number of choices", len(got.choices) == len(want.choices), len(got.choices),
		len(want.choices))
	for i := range min(len(got.choices), len(want.choices)) {
		g, w := got.choices[i], want.choices[i]
		of := fmt.Sprintf(" of choice %d", i)
		differ("the text"+of, g.text == w.text, fmt.Sprintf("%q", g.text), fmt.Sprintf("%q", w.text))
		differ("token_ids"+of, slices.Equal(g.ids, w.ids), g.ids, w.ids)
		differ("prompt_token_ids"+of, slices.Equal(g.promptIDs, w.promptIDs), g.promptIDs, w.promptIDs)
		differ("finish_reason"+of, g.finish == w.finish, g.finish, w.finish)
		differ("stop_reason"+of, g.stop == w.stop, g.stop, w.stop)
		differ("logprobs"+of, slices.EqualFunc(g.logprobs, w.logprobs, sameLogprob), g.logprobs, w.logprobs)
		differ("prompt_logprobs"+of, slices.EqualFunc(g.asked, w.asked, sameLogprob), g.asked, w.asked)
	}
	differ("the sequence of events", got.events == want.events, got.events, want.events)
	differ("the rest", got.rest == want.rest, got.rest, want.rest)
	return strings.Join(d, "; ")
}

func sameLogprob(a, b logprob) bool {
	return a.token == b.token && math.Abs(a.value-b.value) < closeEnough
}

// get reads a URL that must answer 200.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return body, err
}

package conformance

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
)

// Exchange is one request to a real vLLM 0.32.0 and its answer.
type Exchange struct {
	Name, Role string // Role is "prefill" or "decode": the engine that answered
	Request    struct {
		Method, Path string
		Headers      map[string]string
		Body         json.RawMessage
	}
	Status  *int // nil: the connection was refused
	Headers [][2]string
	Body    string // "": a successful answer whose body was not kept
	refusal bool   // headers were not kept, and the error's text is compared
}

var (
	//go:embed testdata/http-vllm-0.32.0.jsonl
	exchanges []byte
	//go:embed testdata/refusals-vllm-0.32.0.jsonl
	refusals []byte
)

// Captures returns all exchanges: refusals first, because the last of the others end engines.
func Captures() ([]Exchange, error) {
	all, err := lines(refusals, func(line []byte) (Exchange, error) {
		var r struct {
			Name, Method, Path, Body string
			Request                  json.RawMessage
			Status                   int
		}
		err := json.Unmarshal(line, &r)
		x := Exchange{Name: r.Name, Role: "prefill", Status: &r.Status, Body: r.Body, refusal: true}
		x.Request.Method = cmp.Or(r.Method, http.MethodPost)
		x.Request.Path = r.Path
		x.Request.Body = r.Request
		return x, err
	})
	if err != nil {
		return nil, err
	}
	whole, err := lines(exchanges, func(line []byte) (x Exchange, err error) {
		err = json.Unmarshal(line, &x)
		return x, err
	})
	return append(all, whole...), err
}

func lines(text []byte, read func([]byte) (Exchange, error)) ([]Exchange, error) {
	var all []Exchange
	for line := range bytes.Lines(text) {
		x, err := read(line)
		if err != nil {
			return nil, fmt.Errorf("captures: %w", err)
		}
		all = append(all, x)
	}
	return all, nil
}

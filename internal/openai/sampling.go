package openai

import (
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// The functions below read a request for a person's eyes. They decide nothing, and run only on demand:
// engines judge these members themselves.

// Number returns a member that is a number.
func (r *Request) Number(name string) (v float64, ok bool) {
	v, err := strconv.ParseFloat(string(r.member(name)), 64)
	return v, err == nil
}

// Limits of the reported stop texts.
const (
	mostStops = 16
	longStop  = 64
)

// StopSequences returns the texts that end the answer, where they are few and short.
func (r *Request) StopSequences() []string {
	name := "stop"
	if r.Kind == Messages {
		name = "stop_sequences"
	}
	value := r.member(name)
	if len(value) > 0 && value[0] == '"' {
		return shortTexts(nil, value)
	}
	var stops []string
	s := scanner(value)
	if s.Peek() != '[' {
		return nil
	}
	for range s.Elements() {
		if stops = shortTexts(stops, s.Value()); len(stops) > mostStops {
			return nil
		}
	}
	return stops
}

func shortTexts(list []string, value []byte) []string {
	if len(value) > 0 && value[0] == '"' {
		if text := rawjson.Text(value); len(text) <= longStop {
			return append(list, text)
		}
	}
	return list
}

// Names returns the id of an answer and the model that it names: of a whole answer, or of the data of an
// event.
func Names(data []byte) (id, model string) {
	s := scanner(data)
	if s.Peek() != '{' {
		return "", ""
	}
	for key := range s.Members() {
		value := s.Value()
		switch {
		case len(value) == 0:
			return id, model
		case rawjson.Equal(key, "id") && value[0] == '"':
			id = rawjson.Text(value)
		case rawjson.Equal(key, "model") && value[0] == '"':
			model = rawjson.Text(value)
		case (rawjson.Equal(key, "message") || rawjson.Equal(key, "response")) && value[0] == '{':
			return Names(value) // an event of messages or of responses that opens the stream
		}
	}
	return id, model
}

package openai

import (
	"bytes"
	"iter"
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Finished reports whether a good answer to the request, whole or all of a stream, ended by itself or at its
// limit: it was not aborted, nor did it call a tool.
func (r *Request) Finished(answer []byte) bool {
	switch r.Kind {
	case Messages:
		return messageFinished(answer)
	case Responses:
		return responseFinished(answer)
	}
	return choicesFinished(answer)
}

var finishMark = []byte(`"finish_reason"`)

// choicesFinished tells it of chats and completions. The names in their texts have escaped quotes, and are
// not found.
func choicesFinished(answer []byte) bool {
	ended := false
	for {
		_, rest, found := bytes.Cut(answer, finishMark)
		if !found {
			return ended
		}
		answer = bytes.TrimLeft(rest, ": \t\r\n")
		switch {
		case bytes.HasPrefix(answer, null):
		case bytes.HasPrefix(answer, []byte(`"stop"`)), bytes.HasPrefix(answer, []byte(`"length"`)):
			ended = true
		default:
			return false
		}
	}
}

// goodStops are the reasons for which a message ends by itself or at its limit. vLLM gives none for one that
// was aborted.
var goodStops = []string{"end_turn", "stop_sequence", "max_tokens"}

// messageFinished tells it of /v1/messages: the reason stands in the message, or in the event before the
// last.
func messageFinished(answer []byte) bool {
	if !isStream(answer) {
		return slices.Contains(goodStops, textAt(answer, "stop_reason"))
	}
	reason, last := "", ""
	for data := range eventsOf(answer) {
		last = textAt(data, "type")
		if last == "message_delta" {
			delta, _ := member(data, "delta", '{')
			reason = textAt(delta.of(data), "stop_reason")
		}
	}
	return last == "message_stop" && slices.Contains(goodStops, reason)
}

// responseFinished tells it of /v1/responses: the last event of a stream has all of the response.
func responseFinished(answer []byte) bool {
	response := answer
	if isStream(answer) {
		var last []byte
		for data := range eventsOf(answer) {
			last = data
		}
		switch textAt(last, "type") {
		case "response.completed", "response.incomplete":
		default:
			return false
		}
		whole, _ := member(last, "response", '{')
		response = whole.of(last)
	}
	switch textAt(response, "status") {
	case "completed":
		return true
	case "incomplete": // at its limit, or cut off by a filter
		why, _ := member(response, "incomplete_details", '{')
		return textAt(why.of(response), "reason") == "max_output_tokens"
	}
	return false
}

// isStream reports whether an answer is a stream of events: a whole answer is an object.
func isStream(answer []byte) bool {
	answer = bytes.TrimLeft(answer, " \t\r\n")
	return len(answer) > 0 && answer[0] != '{'
}

// eventsOf yields the data of each event of a complete stream.
func eventsOf(stream []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var cut Events
		for e := range cut.Feed(stream) {
			if data := e.Data(); len(data) > 0 && !yield(data) {
				return
			}
		}
		if data := Event(cut.Pending()).Data(); len(data) > 0 {
			yield(data)
		}
	}
}

// textAt is the text of a member of object, "" where it has none.
func textAt(object []byte, name string) string {
	at, ok := member(object, name, '"')
	if !ok {
		return ""
	}
	return rawjson.Text(at.of(object))
}

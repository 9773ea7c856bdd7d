package orchestrator

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/picker"
)

// pickedAnswer reads an answer that a gateway passes on, and hides transfer params from the client.
type pickedAnswer struct {
	status  int
	stream  bool
	content bool      // generated content has come
	firstAt time.Time // time of the first content; zero before
	output  int       // tokens, or events until the engine reports the tokens
	usage   openai.Usage

	errorCode int // status of the error event in the stream; 0: no error event

	cut  openai.Events
	held []byte // an answer that is no stream: the bytes so far
}

// take reads a part and returns the bytes for the client. limit is the greatest length of an answer that is
// no stream. The result is valid until the next call. Answers of unknown APIs, and errors, pass unread.
func (a *pickedAnswer) take(kind openai.Kind, part *picker.Part, limit int) ([]byte, error) {
	if part.Status != 0 {
		a.status, a.usage.Cached = part.Status, -1
		a.stream = strings.HasPrefix(part.ContentType, "text/event-stream")
	}
	switch {
	case kind == 0 || a.status != http.StatusOK:
		a.content = a.content || a.status == http.StatusOK && len(part.Body) > 0
		return part.Body, nil
	case a.stream:
		return a.events(kind, part)
	}
	if len(a.held)+len(part.Body) > limit {
		return nil, engine.ErrTooLarge
	}
	if a.held = append(a.held, part.Body...); !part.End {
		return nil, nil
	}
	said := kind.Find(a.held)
	a.content = said.IsAnswer()
	a.note(&said)
	return said.Shown(nil, unknownCache), nil
}

// events reads whole events of a stream.
func (a *pickedAnswer) events(kind openai.Kind, part *picker.Part) (out []byte, err error) {
	out = make([]byte, 0, len(part.Body)+slack)
	for e := range a.cut.Feed(part.Body) {
		data := e.Data()
		if code, bad := openai.HasError(data); bad {
			a.errorCode = errorStatus(code)
		} else if !e.IsDone() && !e.IsComment() && !kind.Ends(data) {
			a.output++
			a.content = a.content || openai.HasContent(data)
		}
		if openai.NeedsScrub(e) {
			e = openai.Scrub(nil, e)
		}
		if bytes.Contains(e, usageMark) {
			said := kind.Find(e)
			a.note(&said)
		}
		out = append(out, e...)
	}
	if part.End {
		out = append(out, a.cut.Pending()...)
	}
	return out, a.cut.Err()
}

// note records the engine's usage of the request.
func (a *pickedAnswer) note(said *openai.Said) {
	u, ok := said.Usage()
	if !ok {
		return
	}
	a.usage = u
	if u.Completion > 0 {
		a.output = u.Completion
	}
}

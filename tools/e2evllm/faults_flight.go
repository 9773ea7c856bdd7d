package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// flight is a request in flight during a fault. Its goroutine owns landed until done is closed.
type flight struct {
	request
	phase  string // the phase in which the fault finds it: a row of the table
	base   string
	begun  time.Time
	took   time.Duration
	fair   time.Duration // the part of took in which no engine waited for a CPU
	landed landed
	pieces atomic.Int64  // pieces of a stream's text, so far
	first  chan struct{} // closed with the first content of a stream, or with done
	done   chan struct{}
}

// landed is everything that a client learns of one request, for any of the four APIs.
//
// Long: one field per fact of an answer, written by the client and compared by checks.
type landed struct {
	id       string // X-Request-Id
	status   int
	text     string
	ids      []int // of completions that ask for them
	finish   string
	prompt   int // tokens, by usage
	output   int
	ended    bool          // the last event, or the whole body, is there
	failure  string        // the message of an error
	odd      string        // a violation of the API's format
	broken   error         // of the connection
	canceled bool          // by us
	pause    time.Duration // the longest time between two pieces of a stream's text
}

// launch sends q to base. The flight lands by itself.
func launch(ctx context.Context, base, phase string, q request) *flight {
	f := &flight{
		request: q, phase: phase, base: base, begun: time.Now(), first: make(chan struct{}),
		done: make(chan struct{}),
	}
	go func() {
		defer close(f.done)
		clock := runTime()
		begin := sync.OnceFunc(func() { close(f.first) })
		defer begin()
		f.landed = tell(ctx, base, q, func() {
			f.pieces.Add(1)
			begin()
		})
		f.took, f.fair = time.Since(f.begun), clock.elapsed()
	}()
	return f
}

// flies reports whether the answer has not ended yet.
func (f *flight) flies() bool {
	select {
	case <-f.done:
		return false
	default:
		return true
	}
}

// land waits for the end of the flight.
func (f *flight) land() *landed {
	<-f.done
	return &f.landed
}

// tell sends q to base and reads the answer to its end, or to its break. begin is called with each piece of a
// stream's text.
func tell(ctx context.Context, base string, q request, begin func()) landed {
	var t landed
	data, err := json.Marshal(q.body)
	if err != nil {
		return landed{broken: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+q.path, bytes.NewReader(data))
	if err != nil {
		return landed{broken: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return landed{broken: err, canceled: ctx.Err() != nil}
	}
	defer resp.Body.Close()
	t.id, t.status = resp.Header.Get("X-Request-Id"), resp.StatusCode
	switch {
	case t.status == http.StatusOK && q.body["stream"] == true:
		err = t.readEvents(q.path, resp.Body, begin)
	default:
		if data, err = io.ReadAll(resp.Body); err == nil {
			t.take(q.path, "", data)
			t.ended = true
		}
	}
	t.broken, t.canceled = err, ctx.Err() != nil
	return t
}

// readEvents reads a stream of the API.
func (t *landed) readEvents(path string, r io.Reader, begin func()) error {
	lines, name := bufio.NewReader(r), ""
	var grew time.Time
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		had := len(t.text)
		line = strings.TrimRight(line, "\r\n")
		event, isName := strings.CutPrefix(line, "event: ")
		data, isData := strings.CutPrefix(line, "data: ")
		switch {
		case isName:
			name = event
		case data == "[DONE]":
			t.end(path == completions || path == chat, "[DONE]")
		case isData:
			t.take(path, name, []byte(data))
			name = ""
		case line != "" && !strings.HasPrefix(line, ":"):
			t.odd = fmt.Sprintf("a line that is no event: %.100q", line)
		}
		if len(t.text) > had {
			begin()
			now := time.Now()
			if had > 0 {
				t.pause = max(t.pause, now.Sub(grew))
			}
			grew = now
		}
	}
}

// end notes the end of the stream. Anything after the end is odd.
func (t *landed) end(right bool, what string) {
	if !right || t.ended {
		t.odd = "a stream must not end like this: " + what
	}
	t.ended = true
}

// verdict is the quality of an answer.
type worth int

const (
	exact worth = iota
	clearError
	wrong
)

// judgeLanded compares an answer with the answer of the engine that splits nothing. A connection that breaks
// off is a clear error only if cut allows it: a killed process can send no error.
func judgeLanded(got, want *landed, cut bool) (worth, string) {
	switch {
	case want.status != http.StatusOK || want.broken != nil || want.odd != "" || want.failure != "":
		return wrong, fmt.Sprintf("no answer from the reference: %+v", *want)
	case got.odd != "":
		return wrong, got.odd
	case !strings.HasPrefix(want.text, got.text):
		return wrong, fmt.Sprintf("the text is %.80q, alone it is %.80q", got.text, want.text)
	case got.failure != "" &&
		(got.status == http.StatusOK || got.status >= 500 || got.status == http.StatusTooManyRequests) &&
		got.ended:
		return clearError, fmt.Sprintf("%d %s", got.status, got.failure)
	case got.failure != "":
		return wrong, fmt.Sprintf("status %d, ended %v: %s", got.status, got.ended, got.failure)
	case got.broken != nil && cut:
		return clearError, got.broken.Error()
	case got.broken != nil:
		return wrong, fmt.Sprintf("status %d, then %v", got.status, got.broken)
	case got.status != http.StatusOK:
		return wrong, fmt.Sprintf("status %d without an error", got.status)
	case !got.ended:
		return wrong, "a stream that stops without an end"
	}
	return compareWhole(got, want)
}

func compareWhole(got, want *landed) (worth, string) {
	switch {
	case got.text != want.text || !slices.Equal(got.ids, want.ids):
		return wrong, fmt.Sprintf("the text is %.80q, alone it is %.80q", got.text, want.text)
	case got.finish != want.finish:
		return wrong, fmt.Sprintf("it finished by %q, alone by %q", got.finish, want.finish)
	case got.prompt != want.prompt || got.output != want.output:
		return wrong, fmt.Sprintf("usage is %d and %d, alone %d and %d",
			got.prompt, got.output, want.prompt, want.output)
	}
	return exact, ""
}

// awaitFirst waits for the first content of a stream.
func awaitFirst(ctx context.Context, one *flight, limit time.Duration) error {
	return eventually(ctx, limit, func() error {
		select {
		case <-one.first:
			return nil
		default:
			return errors.New("a stream does not begin")
		}
	})
}

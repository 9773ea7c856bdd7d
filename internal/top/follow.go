// Package top is the live page of a router in a terminal.
package top

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/why"
)

// Source is the router that is looked at.
type Source struct {
	Base  string // URL of its admin listener
	Token string // admin token, "" for none
}

// follow hands over every snapshot, or why there is none, until ctx ends; after an error it asks again.
func (s Source) follow(ctx context.Context, got func(*page.Live, error)) {
	for wait := time.Second / 2; ctx.Err() == nil; wait = min(2*wait, 10*time.Second) {
		err := s.once(ctx, func(l *page.Live) {
			wait = time.Second / 2
			got(l, nil)
		})
		if ctx.Err() != nil {
			return
		}
		got(nil, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// largestSnapshot is enough for a fleet of thousands of replicas.
const largestSnapshot = 64 << 20

// patience is how long a router may be silent that sends a snapshot each [page.Every].
const patience = 10 * page.Every

var errSilent = errors.New("the router is silent: it, or its machine, stands still, or packets vanish")

// once follows one connection to its end.
func (s Source) once(ctx context.Context, got func(*page.Live)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silent.Stop()
	body, err := s.open(ctx, "debug/live")
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, largestSnapshot)
	for lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is {
			continue
		}
		l := &page.Live{}
		if err := json.Unmarshal(data, l); err != nil {
			return fmt.Errorf("%s streams an unknown format: %w", s.Base, err)
		}
		silent.Reset(patience)
		got(l)
	}
	if context.Cause(ctx) == errSilent {
		return errSilent
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the router has ended the connection")
}

// open asks for a path of the admin listener.
func (s Source) open(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := why.Ask(ctx, http.MethodGet, s.Base, s.Token, path)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // the status says enough
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answers %s: %s", s.Base, resp.Status, bytes.TrimSpace(text))
	}
	return resp.Body, nil
}

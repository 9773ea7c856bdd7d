package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/tandem-router/tandem/tools/pinned"
)

// seen has the fields of a replica in /debug/replicas that the suite reads.
type seen struct {
	Events string `json:"events"`
	Stream struct {
		Replays  int `json:"replays"`
		Restarts int `json:"restarts"`
		Lost     int `json:"lost"`
		Broken   int `json:"decode_errors"`
		Skipped  int `json:"skipped_events"`
	} `json:"event_stream"`
	Book struct {
		Index    string `json:"index"`
		Indexed  int    `json:"indexed_blocks"`
		Capacity int    `json:"capacity_blocks"`
		Size     int    `json:"block_size"`
	} `json:"book"`
}

// look returns the router's state of its only replica.
func (r *router) look(ctx context.Context) (seen, error) {
	body, err := get(ctx, r.admin+"/debug/replicas")
	if err != nil {
		return seen{}, err
	}
	var all struct{ Replicas []seen }
	if err := json.Unmarshal(body, &all); err != nil || len(all.Replicas) != 1 {
		return seen{}, fmt.Errorf("/debug/replicas has not one replica: %w: %s", err, body)
	}
	return all.Replicas[0], nil
}

// follows waits until the router is in step with the engine's events and knows its blocks. n is the number of
// blocks, or -1.
func (r *router) follows(ctx context.Context, e *engine, n int) (seen, error) {
	var at seen
	return at, eventually(ctx, 20*time.Second, func() (err error) {
		if at, err = r.look(ctx); err != nil {
			return err
		}
		switch s := at.Stream; {
		case at.Book.Index != "live":
			return fmt.Errorf("its index is %s, its events %s", at.Book.Index, at.Events)
		case at.Book.Size != blockTokens || at.Book.Capacity != e.Blocks-1:
			return fmt.Errorf("%d blocks of %d tokens are known of %d of %d",
				at.Book.Capacity, at.Book.Size, e.Blocks-1, blockTokens)
		case n >= 0 && at.Book.Indexed != n:
			return fmt.Errorf("%d blocks are in the index, not %d", at.Book.Indexed, n)
		case s.Lost+s.Broken+s.Skipped > 0:
			return fmt.Errorf("events were lost, broken or skipped: %+v", s)
		}
		return nil
	})
}

// settled returns the router's state when its number of blocks has been stable for a second: an engine may
// publish its newest blocks after the answer.
func (r *router) settled(ctx context.Context, e *engine) (seen, error) {
	at, err := r.follows(ctx, e, -1)
	if err != nil {
		return at, err
	}
	err = eventually(ctx, 20*time.Second, func() error {
		before := at.Book.Indexed
		pause(ctx, time.Second)
		if at, err = r.follows(ctx, e, -1); err == nil && at.Book.Indexed != before {
			err = fmt.Errorf("%d blocks are in the index, %d a second before", at.Book.Indexed, before)
		}
		return err
	})
	return at, err
}

// beginAgain lets begin replace a used router or engine by a new one. It requires the router to know the
// blocks that the engine has then.
func (s *stage) beginAgain(
	ctx context.Context, e *engine, begin func(context.Context, *router, *engine, string) (*router, int,
		error),
) error {
	file, err := s.configureWhole("again", e, e.url())
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	g := newGenerator(uint64(time.Now().UnixNano())) // prompts that no earlier part has sent
	prompt := g.ids(10*blockTokens + 5)
	if _, err := r.follows(ctx, e, -1); err != nil {
		return err
	}
	if err := s.foretells(ctx, r, prompt, 0); err != nil {
		return err
	}
	// Events of the last blocks may come after the answer. The router has all events when its prediction is
	// complete.
	knows := func() error { return s.foretells(ctx, r, prompt, 10*blockTokens) }
	if err := eventually(ctx, 20*time.Second, knows); err != nil {
		return err
	}
	r, cached, err := begin(ctx, r, e, file)
	if err != nil {
		return err
	}
	err = errors.Join(s.foretells(ctx, r, prompt, cached), s.foretells(ctx, r, prompt, 10*blockTokens))
	return errors.Join(err, r.end())
}

// beginRouter replaces the router. The new router must learn all blocks from one replay. The prompt stays
// cached.
func (s *stage) beginRouter(ctx context.Context, r *router, e *engine, file string) (*router, int, error) {
	before, err := r.settled(ctx, e)
	if err := errors.Join(err, r.end()); err != nil {
		return nil, 0, err
	}
	if r, err = s.serve(ctx, file); err != nil {
		return nil, 0, err
	}
	after, err := r.follows(ctx, e, before.Book.Indexed)
	if err == nil && (before.Book.Indexed == 0 || after.Stream.Replays == 0) {
		err = fmt.Errorf("%d blocks before, and %d replays after", before.Book.Indexed, after.Stream.Replays)
	}
	say("a new router: %d blocks by replay", after.Book.Indexed)
	return r, 10 * blockTokens, err
}

// beginEngine restarts the engine, whose events start again at 0. Its cache is empty, and the router must
// know this.
func (s *stage) beginEngine(ctx context.Context, r *router, e *engine, _ string) (*router, int, error) {
	if err := s.restart(ctx, e); err != nil {
		return nil, 0, err
	}
	// A router seldom asks an engine that was away for a while.
	err := eventually(ctx, 30*time.Second, func() error {
		_, err := get(ctx, r.admin+"/readyz")
		return err
	})
	if err == nil {
		_, err = r.follows(ctx, e, 0)
	}
	return r, 0, err
}

// foretells sends the prompt, of which the engine has this many tokens cached, and requires the router to
// predict this number. A missing count means 0, see tellZeros.
func (s *stage) foretells(ctx context.Context, r *router, prompt []int, cached int) error {
	a, err := ask(ctx, r.front, completions,
		map[string]any{"model": modelName, "prompt": prompt, "max_tokens": 1, "temperature": 0})
	if err == nil && a.status != 200 {
		err = fmt.Errorf("status %d: %.200s", a.status, a.refusal)
	}
	if err != nil {
		return err
	}
	return eventually(ctx, 5*time.Second, func() error {
		records, err := readRecords(ctx, r)
		if err != nil {
			return err
		}
		for _, rec := range records {
			if rec.ID == a.id && rec.Captured == cached && max(rec.Delivered, 0) == cached {
				return nil
			} else if rec.ID == a.id {
				return fmt.Errorf("%d tokens were predicted and %d found, not %d", rec.Captured,
					rec.Delivered, cached)
			}
		}
		return fmt.Errorf("no record of %s", a.id)
	})
}

//go:embed older_events.py
var eventReader []byte

// speaks requires an engine's events to have this form, "array" or "map". It asks for a replay, and requires
// this number of frames in the reply.
func (e *engine) speaks(ctx context.Context, form string, frames int) error {
	cmd := exec.CommandContext(ctx, e.env.python(), "-c", string(eventReader),
		fmt.Sprintf("tcp://127.0.0.1:%d", e.Replay))
	out, err := cmd.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, pinned.LastLines(failed.Stderr, 5))
		}
		return fmt.Errorf("a replay of %s: %w", e.Name, err)
	}
	return spoken(out, form, frames)
}

func spoken(out []byte, form string, frames int) error {
	var got struct {
		Batches int
		Frames  []int
		Forms   map[string][]string // by kind of event
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	say("events: %s", out)
	if len(got.Frames) != 1 || got.Frames[0] != frames || len(got.Forms) == 0 {
		return fmt.Errorf("replies of %v frames instead of %d: %s", got.Frames, frames, out)
	}
	for kind, forms := range got.Forms {
		if len(forms) != 1 || forms[0] != form {
			return fmt.Errorf("%s is written as %v instead of %s", kind, forms, form)
		}
	}
	return nil
}

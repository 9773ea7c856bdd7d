package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// replicaSeen has the fields of a replica in /debug/replicas that the suite reads.
type replicaSeen struct {
	States []struct{ State, Cause string }
	Name   string `json:"replica"`
	Facts  struct {
		Models, Adapters []string
		Blocks           int
		Ranks            int
		Events           struct{ Endpoint, Replay string }
	} `json:"facts"`
	Events string `json:"events"`
	Stream struct {
		Events       uint64 `json:"events"`
		Lost         uint64 `json:"lost"`
		DecodeErrors uint64 `json:"decode_errors"`
		WrongRank    uint64 `json:"wrong_rank"`
	} `json:"event_stream"`
	Book struct {
		Usage float64 `json:"usage"`
	} `json:"book"`
}

func readReplicas(ctx context.Context, r *router) (map[string]replicaSeen, error) {
	body, err := get(ctx, r.admin+"/debug/replicas")
	if err != nil {
		return nil, err
	}
	var page struct{ Replicas []replicaSeen }
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("/debug/replicas: %w: %.200s", err, body)
	}
	seen := map[string]replicaSeen{}
	for _, one := range page.Replicas {
		seen[one.Name] = one
	}
	return seen, nil
}

// ranksKnown compares Tandem's facts about each replica with the flags of the engines: the blocks of a rank,
// of which one is never given out, and the addresses of its events.
func (s *stage) ranksKnown(ctx context.Context, r *router) error {
	seen, err := readReplicas(ctx, r)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range s.engines {
		if e.Role == "" {
			continue
		}
		for rank, name := range e.rankNames() {
			one, ok := seen[name]
			if !ok {
				errs = append(errs, fmt.Errorf("the router knows no replica %s", name))
				continue
			}
			errs = append(errs, e.likes(one, rank))
		}
	}
	if want := s.engine("p0").Ranks + 1; len(seen) != want {
		errs = append(errs, fmt.Errorf("the router has %d replicas instead of %d", len(seen), want))
	}
	return errors.Join(errs...)
}

// likes returns the facts of a replica that differ from the flags of the rank of e.
func (e *engine) likes(seen replicaSeen, rank int) error {
	var errs []error
	expect := func(what string, got, want any) {
		if got != want {
			errs = append(errs,
				fmt.Errorf("%s: %s is %v by Tandem's word, and %v in truth", seen.Name, what, got, want))
		}
	}
	at := func(first int) string { return "tcp://127.0.0.1:" + strconv.Itoa(first+rank) }
	expect("the number of usable blocks", seen.Facts.Blocks, e.Blocks-1)
	expect("the number of ranks", seen.Facts.Ranks, max(e.Ranks, 1))
	expect("the address of its events", seen.Facts.Events.Endpoint, at(e.Events))
	expect("the address of its replay", seen.Facts.Events.Replay, at(e.Replay))
	expect("the state of its events", strings.HasPrefix(seen.Events, "live"), true)
	if st := seen.Stream; st.Events == 0 || st.Lost+st.DecodeErrors+st.WrongRank > 0 {
		errs = append(errs, fmt.Errorf(
			"%s: its stream brought %d events, lost %d, %d could not be read, %d were another rank's",
			seen.Name,
			st.Events, st.Lost, st.DecodeErrors, st.WrongRank,
		))
	}
	return errors.Join(errs...)
}

// loadOfARank sends a long request directly to rank 1. Tandem must report blocks in use there, and none at
// rank 0.
func (s *stage) loadOfARank(ctx context.Context, r *router) error {
	names := s.engine("p0").rankNames()
	ctx, end := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer end()
	asked.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			body := map[string]any{
				"model": modelName, "prompt": newGenerator(uint64(i)).ids(contextTokens / 2),
				"max_tokens": contextTokens / 2, "ignore_eos": true,
			}
			_, _ = askRank(ctx, s.engine("p0").url(), completions, body, "1")
		}
	})
	return eventually(ctx, 15*time.Second, func() error {
		seen, err := readReplicas(ctx, r)
		if err != nil {
			return err
		}
		if idle, busy := seen[names[0]].Book.Usage, seen[names[1]].Book.Usage; idle != 0 || busy <= 0 ||
			busy > 1 {
			return fmt.Errorf("%s works and %s does not, "+
				"but Tandem sees %.3f and %.3f of their blocks in use",
				names[1], names[0], busy, idle)
		}
		return nil
	})
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// hush waits until the events of earlier requests have arrived, and drops them.
func (t *twin) hush(ctx context.Context, i int) error {
	n := -1
	err := eventually(ctx, 10*time.Second, func() error {
		if before := n; before != t.ears[i].count() {
			n = t.ears[i].count()
			return errors.New("events still come")
		}
		return nil
	})
	t.ears[i].mu.Lock()
	t.ears[i].messages = nil
	t.ears[i].mu.Unlock()
	return err
}

// catchUp waits until all batches that can be replayed have arrived.
func (t *twin) catchUp(ctx context.Context) error {
	for i, l := range t.ears {
		err := eventually(ctx, 10*time.Second, func() error {
			messages, err := l.heard()
			if err != nil || len(messages) == 0 {
				return errors.Join(err, errors.New("no events have come"))
			}
			last := binary.BigEndian.Uint64(messages[len(messages)-1][1])
			replies, err := replayed(t.replay[i], last+1)
			if err == nil && len(replies) > 1 {
				err = fmt.Errorf("%d batches were published and have not come", len(replies)-1)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", twinSides[i], t.name, err)
		}
	}
	return nil
}

// awaitExpiry waits until the leases of unread blocks have expired.
func (p *twinnedPair) awaitExpiry(ctx context.Context) error {
	w := &workload{}
	return eventually(ctx, 35*time.Second,
		func() error { return errors.Join(w.holds(ctx, p.p, 0), w.holds(ctx, p.d, 0)) })
}

func (t *twin) usage(ctx context.Context, i int) (float64, error) {
	text, err := get(ctx, t.urls[i]+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "vllm:kv_cache_usage_perc{") {
			return strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		}
	}
	return 0, errors.New("no vllm:kv_cache_usage_perc")
}

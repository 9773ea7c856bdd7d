package engine

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// scratch holds bodies that are parsed and forgotten.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

const metricsLimit = 16 << 20

// Scrape reads /metrics. At of the loads is left to the caller.
func (c *Client) Scrape(ctx context.Context) (Metrics, error) {
	resp, err := c.Do(ctx, &Request{Method: http.MethodGet, Path: "/metrics", Idempotent: true})
	if err != nil {
		return Metrics{}, fmt.Errorf("scrape: %w", err)
	}
	defer resp.Close()
	if resp.Status != http.StatusOK {
		return Metrics{}, fmt.Errorf("scrape: %w", &StatusError{Path: "/metrics", Status: resp.Status})
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	*buf, err = resp.AppendAll((*buf)[:0], metricsLimit)
	if err != nil {
		return Metrics{}, fmt.Errorf("scrape: %w", err)
	}
	return ParseMetrics(*buf)
}

// StatusError is an answer with another status than the one that was needed.
type StatusError struct {
	Path   string
	Status int
}

func (e *StatusError) Error() string { return e.Path + " answered " + strconv.Itoa(e.Status) }

// Health asks /health: nil when the engine says 200. It tells that the engine core lives, not that it can
// serve a request.
func (c *Client) Health(ctx context.Context) error {
	resp, err := c.Do(ctx, &Request{Method: http.MethodGet, Path: "/health", Idempotent: true})
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer resp.Close()
	if resp.Status != http.StatusOK {
		return fmt.Errorf("health: %w", &StatusError{Path: "/health", Status: resp.Status})
	}
	_, err = resp.ReadAll(metricsLimit)
	return err
}

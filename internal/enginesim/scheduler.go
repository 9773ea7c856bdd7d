package enginesim

import "time"

type request struct{}
type queue struct{}
type cleanup struct{}

// Add queues a request. The errors are what the API layer checks before: ErrLength, and ErrDuplicate and ErrDead.
func (e *Engine) Add(now time.Duration, r *Request) error { return nil }

// Abort ends a request without an output. Unknown ids are ignored.
func (e *Engine) Abort(now time.Duration, id string) {}

// Step runs one scheduler step.
func (e *Engine) Step(now time.Duration) *Step { return &e.step }

package decode

import (
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
)

// Pool stub.
type Pool struct{}

// Options stub.
type Options struct {
	Chain      kv.Chain // zero: taken from the first member whose block size is known
	IndexBytes int64    // memory for the block index, 0 = kv's default
}

// New stub.
func New(o Options) *Pool { return &Pool{} }

// Chain returns the chain by which the pool's index names blocks of model, and the adapter that its root takes. ok is false while no member serves
// the model with blocks of the indexed size.
func (p *Pool) Chain(model string) (chain kv.Chain, adapter string, ok bool) {
	return kv.Chain{}, "", false
}

// Expire drops from the index what was only guessed and not confirmed in time.
func (p *Pool) Expire(now time.Time) {}

// SetMembers stub.
func (p *Pool) SetMembers(ms []replica.Replica, now time.Time) {}

// Apply stub.
func (p *Pool) Apply(id replica.ID, b *kv.Batch) kv.Applied { return kv.Applied{} }

// Forget stub.
func (p *Pool) Forget(id replica.ID) {}

// SetTrust stub.
func (p *Pool) SetTrust(id replica.ID, t replica.Trust) {}

// Observe stub.
func (p *Pool) Observe(id replica.ID, l replica.Load, now time.Time) {}

// SetHealthy stub.
func (p *Pool) SetHealthy(id replica.ID, ok bool, reason string) {}

// Status stub.
func (p *Pool) Status(now time.Time) []MemberStatus { return nil }

// MemberStatus stub.
type MemberStatus struct {
	ID      replica.ID
	Healthy bool
	Reason  string
}

// Lease stub.
type Lease struct{}

// Release stub.
func (l *Lease) Release(now time.Time) {}

// Harden stub.
func (l *Lease) Harden(now time.Time) {}

// Grow stub.
func (l *Lease) Grow(generated int, now time.Time) {}

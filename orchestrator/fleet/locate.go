package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// addresses asks where the blocks of a server's ranks are.
type addresses struct {
	// ask asks for the addresses of so many ranks; nil addresses if the connector needs none.
	ask   func(ctx context.Context, first, ranks int) ([]replica.KVAddress, error)
	asked time.Time // of the watcher's goroutine alone
}

// locate gives the facts of the ranks the addresses of their blocks. Without an address, the facts say why
// the rank hands nothing over.
func (a *addresses) locate(ctx context.Context, of []replica.Facts) {
	if len(of) == 0 {
		return
	}
	a.asked = time.Now()
	all, err := a.ask(ctx, of[0].FirstRank, len(of))
	for i := range of {
		of[i].KV, of[i].NoHandoff = replica.KVAddress{}, ""
		switch {
		case err != nil:
			of[i].NoHandoff = err.Error()
		case all != nil:
			of[i].KV = all[i]
		}
	}
}

// again returns the facts with the present addresses, if they have changed; nil if they have not. It asks
// now and then, since another process has other addresses, and at each call while fit is false: an address
// is missing, or a reload has changed the connector or its ports.
func (a *addresses) again(
	ctx context.Context, was []replica.Facts, fit bool, every time.Duration,
) []replica.Facts {
	if fit && time.Since(a.asked) < every {
		return nil
	}
	now := slices.Clone(was)
	a.locate(ctx, now)
	same := func(a, b replica.Facts) bool { return a.KV == b.KV && a.NoHandoff == b.NoHandoff }
	if slices.EqualFunc(was, now, same) {
		return nil
	}
	return now
}

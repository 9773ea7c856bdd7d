package doctor

import (
	"context"
	"sync"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/setup"
)

// Addresses returns a line for each replica whose name has several addresses, with the replicas to write
// instead. It asks no engine. A nil find asks the resolver of the machine. A name that is unknown here has
// no line: the router's machine may know it.
func Addresses(ctx context.Context, c *config.Config, find engine.LookUp) (lines []string) {
	var wg sync.WaitGroup
	var found []*string // in the order of the replicas
	look := func(pool string, replicas []config.Replica) {
		for _, r := range replicas {
			line := new("")
			found = append(found, line)
			wg.Go(func() {
				if all, err := engine.Several(ctx, r.URL, find); err == nil && len(all) > 0 {
					seen, do := setup.Addresses(r.URL, pool, all)
					*line = seen + ": " + do
				}
			})
		}
	}
	look("prefill", c.Pools.Prefill.Replicas)
	look("decode", c.Pools.Decode.Replicas)
	wg.Wait()
	for _, line := range found {
		if *line != "" {
			lines = append(lines, *line)
		}
	}
	return lines
}

package cluster

import (
	"cmp"

	"github.com/tandem-router/tandem/internal/replica"
)

// Misstated is what routers are told of a fleet that is not true. The zero value states everything as it is.
// Oracles, which are shown the [Truth], are told no lies.
type Misstated struct {
	// Links is how many times as fast as they are routers take all links to be: 10 for ten times too fast, 0.1
	// for ten times too slow, 0 for the truth.
	Links float64
}

// ToldLinks returns the bytes a second of each class of path as routers are told.
func (c *Config) ToldLinks() [replica.Links]float64 {
	told := c.Links
	for class := range told {
		told[class] *= cmp.Or(c.Misstated.Links, 1)
	}
	return told
}

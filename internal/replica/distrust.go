package replica

import (
	"math"
	"time"
)

// Distrust says that an engine process may have cached wrong blocks. Routers tell it to each other, and save
// it for their next process.
type Distrust struct {
	// When the process began, in unix seconds: this identifies the process under any address. 0 is unknown:
	// then the URL identifies it.
	Started float64 `json:"started,omitzero"`
	URL     string  `json:"url,omitempty"` // of its server, if Started is 0
	// Era counts how often the process may have cached wrong blocks. Blocks that it cached in an earlier era
	// are not used. See [Distrust.Plausible] for its range.
	Era uint32 `json:"era"`
	// Seen is when a router last had the process among its engines, in unix seconds.
	Seen int64 `json:"seen"`
}

const (
	maxEra = 1 << 20 // far more than any process lives to see, and far from where a uint32 begins anew
	maxURL = 2048    // bytes
)

// Plausible reports whether d can be true.
func (d *Distrust) Plausible() bool {
	return d.Era > 0 && d.Era <= maxEra && len(d.URL) <= maxURL && (d.Started > 0) != (d.URL != "") &&
		!math.IsInf(d.Started, 0) && !math.IsNaN(d.Started)
}

// distrustAge is how long a process is remembered that no router has among its engines.
const distrustAge = 7 * 24 * time.Hour

// Past reports whether d need not be remembered any more at now.
func (d *Distrust) Past(now time.Time) bool { return now.Sub(time.Unix(d.Seen, 0)) > distrustAge }

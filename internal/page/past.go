package page

import (
	"math"
	"strconv"
	"time"
)

// Past is the last hour of a router or of a replica: for each series a number a step, the oldest first, null
// where nothing is known.
type Past struct {
	End    time.Time         `json:"end"`    // of the newest step
	StepS  float64           `json:"step_s"` // seconds
	Series map[string]Points `json:"series"`
}

// Points are the numbers of a series. NaN is unknown.
type Points []float32

// MarshalJSON writes four digits of each number.
func (ps Points) MarshalJSON() ([]byte, error) {
	out := make([]byte, 1, 2+6*len(ps))
	out[0] = '['
	for i, p := range ps {
		if i > 0 {
			out = append(out, ',')
		}
		if f := float64(p); math.IsNaN(f) || math.IsInf(f, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, f, 'g', 4, 32)
		}
	}
	return append(out, ']'), nil
}

// Fleet is the past of all requests. Times are in ms, shares from 0 to 1, requests and failures of a step.
func (h *History) Fleet() Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	share := func(part, of uint32) float32 { return float32(part) / float32(of) } // 0/0 is NaN
	count := func(p *fleetPoint, n uint32) float32 {
		if p.missed {
			return float32(math.NaN())
		}
		return float32(n)
	}
	return past(h.closed, &h.fleet, map[string]func(*fleetPoint) float32{
		"requests":       func(p *fleetPoint) float32 { return count(p, p.requests) },
		"failed":         func(p *fleetPoint) float32 { return count(p, p.failed) },
		"split":          func(p *fleetPoint) float32 { return share(p.split, p.requests) },
		"hits_possible":  func(p *fleetPoint) float32 { return share(p.available, p.prompt) },
		"hits_delivered": func(p *fleetPoint) float32 { return share(p.delivered, p.prompt) },
		"ttft_p50":       func(p *fleetPoint) float32 { return p.first[0] },
		"ttft_p90":       func(p *fleetPoint) float32 { return p.first[1] },
		"ttft_p99":       func(p *fleetPoint) float32 { return p.first[2] },
		"itl_p50":        func(p *fleetPoint) float32 { return p.token[0] },
		"itl_p90":        func(p *fleetPoint) float32 { return p.token[1] },
		"itl_p99":        func(p *fleetPoint) float32 { return p.token[2] },
		"kv_prefill":     func(p *fleetPoint) float32 { return p.prefillKV },
		"kv_decode":      func(p *fleetPoint) float32 { return p.decodeKV },
	})
}

// Of is the past of a replica; false where no replica has this name.
func (h *History) Of(replica string) (Past, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.replicas[replica]
	if r == nil {
		return Past{}, false
	}
	return past(h.closed, &r.points, map[string]func(*replicaPoint) float32{
		"requests": func(p *replicaPoint) float32 { return number(p.requests) },
		"failed":   func(p *replicaPoint) float32 { return number(p.failed) },
		"running":  func(p *replicaPoint) float32 { return number(p.running) },
		"waiting":  func(p *replicaPoint) float32 { return number(p.waiting) },
		"kv":       func(p *replicaPoint) float32 { return number(p.kv) / 1000 },
		"ttft_p50": func(p *replicaPoint) float32 { return p.first[0] },
		"ttft_p90": func(p *replicaPoint) float32 { return p.first[1] },
		"itl_p50":  func(p *replicaPoint) float32 { return p.token },
	}), true
}

func past[P any](end time.Time, r *ring[P], of map[string]func(*P) float32) Past {
	p := Past{End: end, StepS: HistoryStep.Seconds(), Series: make(map[string]Points, len(of))}
	for name, get := range of {
		points := make(Points, len(r.points))
		for i := range points {
			points[i] = get(r.at(i))
		}
		p.Series[name] = points
	}
	return p
}

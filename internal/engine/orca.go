package engine

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/replica"
)

// The request header that asks for a load report beside the answer, and the one that brings it. Engines
// report on answers that are not streamed.
const (
	ORCARequest  = "Endpoint-Load-Metrics-Format" // TEXT or JSON; TEXT is the cheaper to read
	ORCAResponse = "Endpoint-Load-Metrics"
)

// ParseORCA reads the value of an endpoint-load-metrics header: TEXT or JSON, with or without that word in
// front. Names we do not know are passed over. It says false when the report is empty, when a value is
// impossible, and when a name comes twice. A server with several data-parallel ranks sends names twice,
// without telling the rank. At is left to the caller.
func ParseORCA(value string) (replica.Load, bool) {
	l := replica.NoLoad()
	value = trim(value)
	for _, word := range [...]string{"TEXT", "JSON"} {
		if len(value) >= len(word) && strings.EqualFold(value[:len(word)], word) {
			value = trim(value[len(word):])
			break
		}
	}
	var ok bool
	if strings.HasPrefix(value, "{") {
		ok = orcaJSON(&l, value)
	} else {
		ok = orcaText(&l, value)
	}
	if !ok || l.Running < 0 && l.Waiting < 0 && math.IsNaN(l.Usage) {
		return replica.NoLoad(), false
	}
	l.Source = replica.ORCA
	return l, true
}

func orcaText(l *replica.Load, text string) bool {
	for item := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(trim(item), "=")
		if !ok {
			return false
		}
		if name = trim(name); !knownLoad(name) {
			continue
		}
		v, err := strconv.ParseFloat(trim(value), 64)
		if err != nil || !setLoad(l, name, v) {
			return false
		}
	}
	return true
}

func orcaJSON(l *replica.Load, text string) bool {
	var report struct {
		Named map[string]json.RawMessage `json:"named_metrics"`
	}
	if json.Unmarshal([]byte(text), &report) != nil {
		return false
	}
	for name, raw := range report.Named {
		if !knownLoad(name) {
			continue
		}
		v, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || !setLoad(l, name, v) {
			return false
		}
	}
	return true
}

// loadName is the text before a metric's own name.
func loadName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "named_metrics."), "vllm:")
}

func knownLoad(name string) bool {
	switch loadName(name) {
	case "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc":
		return true
	}
	return false
}

// setLoad writes one value, and says false when it cannot be or was there before.
func setLoad(l *replica.Load, name string, v float64) bool {
	switch loadName(name) {
	case "num_requests_running":
		return setCount(&l.Running, v)
	case "num_requests_waiting":
		return setCount(&l.Waiting, v)
	default:
		return setShare(&l.Usage, v)
	}
}

func setCount(to *int, v float64) bool {
	if *to >= 0 || !(v >= 0 && v <= math.MaxInt32) {
		return false
	}
	*to = int(v)
	return true
}

// setShare takes what rounding adds above 1.
func setShare(to *float64, v float64) bool {
	if !math.IsNaN(*to) || !(v >= 0 && v <= 1.001) {
		return false
	}
	*to = min(v, 1)
	return true
}

package answers

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// forever is longer than any answer is kept.
const forever = time.Duration(1<<63 - 1)

// control is what a client wants of the cache, in Cache-Control.
type control struct {
	off    bool // no-store: neither what is kept, nor to be kept
	anew   bool // no-cache: a new answer, which may be kept
	maxAge time.Duration
}

// controlOf reads Cache-Control. Unknown directives are ignored, as HTTP demands.
func controlOf(h http.Header) control {
	wish := control{maxAge: forever}
	for _, line := range h["Cache-Control"] {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "no-store":
				wish.off = true
			case "no-cache":
				wish.anew = true
			case "max-age":
				wish.limit(strings.Trim(strings.TrimSpace(value), `"`))
			}
		}
	}
	return wish
}

// limit reads the seconds of max-age. What is no number is taken for none at all, which costs a computation
// and no stale answer.
func (w *control) limit(seconds string) {
	n, err := strconv.ParseUint(seconds, 10, 31)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		n = 0
	}
	if err == nil || n == 0 {
		w.maxAge = min(w.maxAge, time.Duration(n)*time.Second)
	}
	w.anew = w.anew || w.maxAge == 0
}

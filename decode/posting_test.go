package decode

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// A replica stands still for most of the time because it posts one read after the other. Known posting does
// not count as slow steps; unknown posting does.
func TestWhoPostsReadsIsNotSlow(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := newStreams(2, estimate.DefaultSpeed())
		s.run(20*time.Second, s.usual(4))
		posting := 0.0
		if known {
			posting = 85e-3 / 6000
		}
		s.p.LearnPosting("d1", posting)
		var at time.Time
		usual := s.usual(4)
		called := ""
		s.run(10*time.Second, func() {
			usual()
			if s.now.Sub(at) >= 100*time.Millisecond && len(s.e[0].streams) > 0 {
				at = s.now
				s.e[0].stands = s.now.Add(85 * time.Millisecond)
				s.e[0].streams[0].l.Posts(6000)
			}
			if why := s.slow(0); why != "" {
				called = why
			}
		})
		if (called != "") == known {
			t.Errorf("posting is known: %v, and it is called %q", known, called)
		}
	}
}

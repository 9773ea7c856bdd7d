package why

import (
	"testing"
	"time"

	"tandem/internal/config"
)

// A record does not say when plans tied, so that a page takes the defaults: those of the configuration.
func TestTiesAreTheDefaults(t *testing.T) {
	is := config.Default().Experimental.Scoring
	if tieMS != float64(is.TieAbsolute)/float64(time.Millisecond) || tieShare != is.TieRelative {
		t.Errorf("ties are %v ms and %v here, and %v and %v by default", tieMS, tieShare, is.TieAbsolute,
			is.TieRelative)
	}
}

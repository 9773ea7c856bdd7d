package replica

import "testing"

func TestReleasesAgreeInWhatBothKnow(t *testing.T) {
	known := Release{Root: "org/m", Version: "0.32.0", Revision: "one", Sample: 1}
	for _, tt := range []struct {
		other Release
		want  bool
	}{
		{known, true},
		{Release{}, true},
		{Release{Root: "org/m"}, true},
		{Release{Version: "0.32.0"}, true},
		{Release{Root: "org/m", Version: "0.33.0"}, false},
		{Release{Root: "org/n", Version: "0.32.0"}, false},
		{Release{Root: "org/n"}, false},
		{Release{Revision: "two"}, false},
		{Release{Sample: 2}, false},
	} {
		if got := known.Agrees(tt.other); got != tt.want || tt.other.Agrees(known) != got {
			t.Errorf("%+v agrees with %+v: %v, want %v both ways", known, tt.other, got, tt.want)
		}
	}
}

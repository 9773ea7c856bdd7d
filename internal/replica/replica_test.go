package replica

import "testing"

func TestLinkTo(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b Place
		want Link
	}{
		{"nothing known", Place{}, Place{}, Other},
		{"same host", Place{Host: "h"}, Place{Host: "h"}, SameHost},
		{"same rack, other host", Place{"a", "r", "z"}, Place{"b", "r", "z"}, SameRack},
		{"same zone", Place{"a", "r", "z"}, Place{"b", "s", "z"}, SameZone},
		{"nothing shared", Place{"a", "r", "z"}, Place{"b", "s", "y"}, Other},
	} {
		if got := tt.a.LinkTo(tt.b); got != tt.want {
			t.Errorf("%s: LinkTo = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"0.27.0": true, "0.27.0rc1": true, "0.32.0": true, "1.0": true, "v0.27": true, "0.27rc2": true,
		"0.26.9": false, "0.9.2": false, "": false, "dev": false, "x.y.z": false,
	} {
		if got := AtLeast(version, 0, 27); got != want {
			t.Errorf("AtLeast(%q, 0, 27) = %v, want %v", version, got, want)
		}
	}
}

func TestServes(t *testing.T) {
	r := Replica{Facts: Facts{Models: []string{"base", "ad"}, Adapters: []string{"ad"}, Ranks: 2}}
	if !r.Serves("ad") || r.Serves("other") || r.Adapter("base") != "" || r.Adapter("ad") != "ad" ||
		!r.Pinned() {
		t.Errorf("replica %+v answers wrongly", r)
	}
}

package kv

import "testing"

func TestHashOf(t *testing.T) {
	for _, tt := range []struct {
		name   string
		digest []byte
		want   EngineHash
	}{
		{"empty", nil, 0},
		{"short", []byte{1, 2}, 0x0102},
		{"eight", []byte{1, 2, 3, 4, 5, 6, 7, 8}, 0x0102030405060708},
		{"the last eight of a digest", []byte{9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8}, 0x0102030405060708},
	} {
		if got := HashOf(tt.digest); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

func TestParseTier(t *testing.T) {
	for medium, want := range map[string]Tier{
		"": GPU, "GPU": GPU, "gpu": GPU, "CPU": CPU, "cpu": Shared, "cpu_pinned": CPU,
		"STORAGE": Disk, "Disk": Disk,
		"EXTERNAL": Other, "??": Other,
	} {
		if got := ParseTier(medium); got != want {
			t.Errorf("ParseTier(%q) = %v, want %v", medium, got, want)
		}
	}
}

package tokenizer

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestEstimateTokens(t *testing.T) {
	image := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x01\x82\xff", 100_000)))
	for _, tt := range []struct {
		name, raw string
		low, high int
	}{
		{"nothing", ``, 1, 1},
		{"text", strings.Repeat("a word ", 4000), 7000, 7000},
		{"a text without blanks", `"` + strings.Repeat("語", 4000) + `"`, 3000, 3000},
		{"a long name", strings.Repeat("x", mediaRun-1), 127, 127},
		{"an image", `{"url":"data:image/png;base64,` + image + `"}`, MediaTokens, MediaTokens + 20},
		{
			"with its slashes escaped", `"` + strings.ReplaceAll(image, "/", `\/`) + `"`, MediaTokens,
			MediaTokens + 20,
		},
		{
			"two images and text", `"` + image + `","` + image + `"` + strings.Repeat(" ab", 400), 2*MediaTokens + 300,
			2*MediaTokens + 310,
		},
	} {
		if got := EstimateTokens([]byte(tt.raw), 4); got < tt.low || got > tt.high {
			t.Errorf("%s: %d tokens, want %d to %d", tt.name, got, tt.low, tt.high)
		}
	}
}

func FuzzEstimateTokens(f *testing.F) {
	f.Add([]byte(`{"prompt":"hello"}`), 4.0)
	f.Add([]byte(strings.Repeat("A", 2*mediaRun)), 0.0)
	f.Fuzz(func(t *testing.T, raw []byte, perToken float64) {
		if got := EstimateTokens(raw, perToken); got < 1 || got > 10*len(raw)+1 {
			t.Fatalf("%d tokens in %d bytes", got, len(raw))
		}
	})
}

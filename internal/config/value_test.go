package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		text string
		want Bytes // -1: an error
	}{
		{"0", 0},
		{"4096", 4096},
		{"64MiB", 64 << 20},
		{"1 GiB", 1 << 30},
		{"3GB", 3e9},
		{"1.5KiB", 1536},
		{"12B", 12},
		{"2kB", 2000},
		{"", -1},
		{"-1", -1},
		{"MiB", -1},
		{"1.5B", -1},
		{"1e30GB", -1},
		{"9223372036854775807", 1<<63 - 1},
		{"9223372036854775808", -1},
		{"8388608TiB", -1},
		{"0x10", -1},
		{"1_0.5", -1},
		{"NaN", -1},
		{"Inf", -1},
		{"64 mb", -1},
	} {
		got, err := ParseBytes(c.text)
		if c.want < 0 && err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", c.text, got)
		}
		if c.want >= 0 && (err != nil || got != c.want) {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", c.text, got, err, c.want)
		}
	}
}

func TestBytesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Bytes(rapid.Int64Min(0).Draw(t, "bytes"))
		if got, err := ParseBytes(want.String()); err != nil || got != want {
			t.Fatalf("got %d, %v from %q; want %d", got, err, want, want)
		}
	})
}

// A secret does not appear in any written form of a configuration, in logs or in answers.
func TestSecretsAreNotShown(t *testing.T) {
	const hush = "hush-hush"
	c := Default()
	c.APIKeys = []Secret{{Value: hush}, {Env: "KEY", text: hush}, {File: "key", text: hush}}
	c.Pools.Decode.APIKey = Secret{Value: hush}
	other := Default()

	var shown bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		fmt.Fprintf(&shown, verb+verb+verb+"\n", *c, c.APIKeys, c.Pools.Decode.APIKey)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	shown.Write(text)
	if err := json.NewEncoder(&shown).Encode(c); err != nil {
		t.Fatal(err)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&shown, nil), slog.NewJSONHandler(&shown, nil)} {
		slog.New(h).Info("config", "all", c, "key", c.APIKeys[0], "pool", c.Pools.Decode)
	}
	fmt.Fprint(&shown, Diff(c, other), Diff(other, c))

	if i := strings.Index(shown.String(), hush); i >= 0 {
		t.Errorf("got ...%s..., want no secret", shown.String()[max(0, i-100):i+len(hush)])
	}
	for i, s := range c.APIKeys {
		if s.Reveal() != hush {
			t.Errorf("got %q from Reveal of key %d, want the secret", s.Reveal(), i)
		}
	}
}

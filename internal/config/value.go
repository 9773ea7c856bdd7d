package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size, in the file as "64MiB", "3GB" or a plain number of bytes. Bandwidths use it too, in bytes
// a second.
type Bytes int64

var units = []struct {
	name string
	size int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"kB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// String writes b with the largest unit that loses nothing.
func (b Bytes) String() string {
	best, unit := int64(1), ""
	for _, u := range units {
		if b != 0 && int64(b)%u.size == 0 && u.size > best {
			best, unit = u.size, u.name
		}
	}
	return strconv.FormatInt(int64(b)/best, 10) + unit
}

// ParseBytes reads "64MiB", "1.5GB", "512B" or "4096". It refuses negative sizes and what does not fit an
// int64.
func ParseBytes(s string) (Bytes, error) {
	number, size := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/size {
			return 0, fmt.Errorf("size %q is out of range", s)
		}
		return Bytes(n * size), nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpP_") {
		return 0, fmt.Errorf("%q is not a size", s)
	}
	if f *= float64(size); !(f >= 0 && f < math.MaxInt64) || f != math.Trunc(f) {
		return 0, fmt.Errorf("size %q is not a whole number of bytes in range", s)
	}
	return Bytes(f), nil
}

// MarshalText writes [Bytes.String].
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// NamedPort is a port by its name or by its number. The file may have the number with or without quotes.
type NamedPort string

// Alpha is a weight that is a number, 0 or more, or follows the queues by itself.
type Alpha struct {
	Auto  bool
	Value float64 // where Auto is false
}

func (a Alpha) String() string {
	if a.Auto {
		return "auto"
	}
	return strconv.FormatFloat(a.Value, 'g', -1, 64)
}

// MarshalText writes [Alpha.String].
func (a Alpha) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Secret is text that is never shown: given in the file as {value: ...}, {file: path} or {env: NAME}. Only
// [Secret.Reveal] gives it out.
type Secret struct {
	Value string `yaml:"value"`
	File  string `yaml:"file"` // the content, without the newline at its end
	Env   string `yaml:"env"`

	text string // resolved
}

// Reveal returns the text, "" where the secret is not set or has not been resolved by [Load].
func (s Secret) Reveal() string {
	if s.Value != "" {
		return s.Value
	}
	return s.text
}

// IsSet reports whether the file names a secret here.
func (s Secret) IsSet() bool { return s.Value != "" || s.File != "" || s.Env != "" }

const redacted = "(redacted)"

// String tells where the secret comes from and no part of the secret.
func (s Secret) String() string {
	switch {
	case s.File != "":
		return "file " + s.File
	case s.Env != "":
		return "env " + s.Env
	case s.Value != "":
		return redacted
	}
	return ""
}

// GoString is [Secret.String], for %#v.
func (s Secret) GoString() string { return "config.Secret(" + s.String() + ")" }

// LogValue is [Secret.String].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is [Secret.String], for JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

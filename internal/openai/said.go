package openai

import (
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Said is where the parts of an engine's answer lie that are read or changed on its way to a client: its
// usage, and transfer params. One walk finds them all, however many there are.
type Said struct {
	data    []byte
	whole   bool    // the JSON is complete
	answers bool    // it has the member with the generated output
	usage   span    // of the first usage that says something; empty where there is none
	fixed   bool    // the usage belongs to an event that opens a message, and stays unchanged
	secrets []patch // make transfer params null
}

// walk finds the parts among the members of an object. fixed says that a usage in the object stays as it is.
func (f *Said) walk(s *rawjson.Scanner, holds string, fixed bool) {
	for key := range s.Members() {
		name, c := rawjson.Name(key), s.Peek()
		at := span{start: s.Pos}
		if c == '{' && wraps(name) {
			f.walk(s, "", fixed || string(name) != "response")
		} else {
			s.Skip()
		}
		if at.end = s.Pos; s.Err() != nil {
			return
		}
		f.note(name, c, at, holds, fixed)
	}
}

// note takes down one member. c is the first byte of its value.
func (f *Said) note(name []byte, c byte, at span, holds string, fixed bool) {
	switch {
	case holds != "" && string(name) == holds:
		f.answers = c == '['
	case string(name) == "usage":
		if c == '{' && f.usage.end == 0 {
			f.usage, f.fixed = at, fixed
		}
	case c != 'n' && secret(name):
		f.secrets = append(f.secrets, patch{at, null})
	}
}

// wraps reports whether a member holds the answer itself, as in events of /v1/responses and /v1/messages.
func wraps(name []byte) bool { return string(name) == "response" || string(name) == "message" }

func secret(name []byte) bool {
	return string(name) == "kv_transfer_params" || string(name) == "ec_transfer_params"
}

// IsAnswer reports whether it is a whole answer of the API: a complete JSON object with the member for the
// generated output. A proxy in front of an engine may say 200 with an error page, or with nothing.
func (f *Said) IsAnswer() bool { return f.answers && f.whole }

// Usage reads the usage, also of /v1/messages and /v1/responses.
func (f *Said) Usage() (Usage, bool) {
	if f.usage.end == 0 {
		return Usage{}, false
	}
	return usageOf(f.usage.of(f.data))
}

// Shown is the answer for a client: without transfer params, and with the given counts of the prefix cache
// in its usage, unless they are unknown. Added is set only where the engine reports it. An unchanged answer
// shares memory with the walked data; a changed one is made in room, if it fits.
func (f *Said) Shown(room []byte, cached CachedPrompt) []byte {
	patches := f.secrets
	if cached.Found >= 0 && f.whole && f.usage.end > 0 && !f.fixed {
		usage := f.usage.of(f.data)
		inside := detailPatches(usage, cached)
		if inside == nil {
			inside = messagePatches(usage, cached)
		}
		patches = slices.Concat(patches, moved(inside, f.usage.start))
	}
	if len(patches) == 0 {
		return f.data
	}
	return apply(room[:0], f.data, sorted(patches))
}

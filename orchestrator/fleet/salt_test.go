package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

func TestSalted(t *testing.T) {
	for _, c := range []struct{ body, salt string }{
		{`{}`, "\x1ftandem-era-3"},
		{` {"model":"m" } `, "\x1ftandem-era-3"},
		{`{"cache_salt":"mine","model":"m"}`, "mine\x1ftandem-era-3"},
		{`{"a":{"cache_salt":"inner"},"cache_salt":null}`, "\x1ftandem-era-3"},
		{`{"cache_salt":""}`, "\x1ftandem-era-3"},
		{`{"cache_salt":"x\ufffd"}`, "x\ufffd\x1ftandem-era-3"},
		{`{"cache_salt":5,"cache_salt":"x"}`, "x\x1ftandem-era-3"},
		{`{"cache_salt":"\ud800","cache_salt":null}`, "\x1ftandem-era-3"},
		{`{"cache_salt":"x","cache_salt":"y"}`, "y\x1ftandem-era-3"},
	} {
		var got map[string]any
		if err := json.Unmarshal(salted([]byte(c.body), 3), &got); err != nil || got["cache_salt"] != c.salt {
			t.Errorf("%s: %v, %q; want %q", c.body, err, got["cache_salt"], c.salt)
		}
	}
	for _, other := range []string{
		"", "--boundary\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{}", "[1]",
		`{"cache_salt":[null]}`, `{"cache_salt":5}`, `{"cache_salt":"x","cache_salt":5}`,
		`{"cache_salt":"\ud800"}`, `{"a":1,}`,
	} {
		if got := salted([]byte(other), 3); string(got) != other {
			t.Errorf("%q became %q", other, got)
		}
	}
}

// Whatever object goes in, an object with the salt and everything else comes out.
func FuzzSalted(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":[1,2],"cache_salt":"x"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil || before == nil || !json.Valid(body) {
			return
		}
		s := rawjson.Scanner{Data: body}
		if s.Skip(); s.Err() != nil {
			return // an engine never sees what our own reader refuses
		}
		if err := json.Unmarshal(salted(bytes.Clone(body), 1), &after); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		own, isText := before["cache_salt"].(string) // in which half a surrogate pair is a U+FFFD
		mayBeTorn := strings.ContainsRune(own, utf8.RuneError)
		if salt, ok := after["cache_salt"].(string); !mayBeTorn && (before["cache_salt"] == nil || isText) !=
			(ok && strings.HasSuffix(salt, "\x1ftandem-era-1")) && !strings.HasSuffix(own, "\x1ftandem-era-1") {
			t.Errorf("%q: salt %q", body, after["cache_salt"])
		}
		delete(before, "cache_salt")
		delete(after, "cache_salt")
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%q: %v became %v", body, before, after)
		}
	})
}

package orchestrator

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// form is a request for a transcription, with these parts.
func form(parts ...string) prompt {
	p := post("/v1/audio/transcriptions", "--x\r\n"+strings.Join(parts, "\r\n--x\r\n")+"\r\n--x--\r\n")
	p.header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
	return p
}

const recorded = "Content-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n" +
	"Content-Type: audio/mpeg\r\n\r\n\xff\xfb\x00\r\n\r\nname=\"model\""

// A key with models uses the model that a form names. A form whose model engines may read differently is
// refused.
func TestModelsOfAKeyInForms(t *testing.T) {
	model := field("model", "sim")
	for name, c := range map[string]struct {
		secret string
		asked  prompt
		status int // 404 "no access" is told from the engine's 404 by the legs
		legs   int
	}{
		"allowed":           {"hush-c", form(model, recorded), 404, 1},
		"behind":            {"hush-c", form(recorded, field("prompt", "a"), model), 404, 1},
		"the only one":      {"hush-c", form(recorded), 404, 1},
		"not allowed":       {"hush-b", form(model, recorded), 404, 0},
		"allowed, not here": {"hush-b", form(field("model", "other"), recorded), 404, 0},
		"default":           {"hush-b", form(recorded), 404, 0},
		"twice":             {"hush-b", form(field("model", "other"), model, recorded), 400, 0},
		"disguised":         {"hush-b", form(field("model", "other"), field("x\"; name=\"model", "sim")), 400, 0},
		"extended":          {"hush-b", form(strings.Replace(model, "e=\"model\"", "e*=utf-8''model", 1)), 400, 0},
		"a file":            {"hush-c", form(strings.Replace(model, "l\"", "l\"; filename=\"m\"", 1)), 400, 0},
		"empty":             {"hush-c", form(field("model", ""), recorded), 400, 0},
		"endless":           {"hush-c", form(field("model", strings.Repeat("m", 1<<20)), recorded), 404, 0},
		"unquoted":          {"hush-c", form(strings.ReplaceAll(model, `"`, ""), recorded), 404, 1},
		"named twice":       {"hush-c", form(strings.Replace(recorded, "3\"", "3\"; filename*=a", 1)), 404, 1},
		"before the first":  {"hush-c", post("/v1/audio/transcriptions", "x"+form(model, recorded).body), 400, 0},
		"any, disguised":    {"hush-a", form(field("x\"; name=\"model", "sim"), recorded), 404, 1},
	} {
		in(t, setup{config: func(c *config.Config) {
			limited(c)
			c.Keys[0] = config.Key{Name: "team-a", Secret: config.Secret{Value: "hush-a"}}
		}}, func(w *world) {
			p := c.asked
			p.header = p.shows(c.secret).header
			p.header.Set("Content-Type", "multipart/form-data; boundary=x")
			got := w.ask(p)
			legs := w.posts(false)
			if got.status != c.status || len(legs) != c.legs || c.legs == 1 && legs[0].body != c.asked.body {
				t.Errorf("%s: %d after %d requests to engines, want %d after %d: %s",
					name, got.status, len(legs), c.status, c.legs, got.raw)
			}
		})
	}
}

// FuzzUsualForm: in a form that is written in the usual way, Go's reader finds the model that stands there.
func FuzzUsualForm(f *testing.F) {
	f.Add(form(field("model", "sim"), recorded).body, "x")
	f.Add(form(recorded, strings.ReplaceAll(field("model", "sim"), `"`, "")).body, "x")
	f.Add("--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--x \r\n\r\nb\r\n--x--", "x")
	f.Fuzz(func(t *testing.T, text, boundary string) {
		if !usualForm([]byte(text), boundary) {
			return
		}
		want := ""
		for _, part := range strings.Split(text, "--"+boundary)[1:] {
			head, body, _ := strings.Cut(part, "\r\n\r\n")
			if strings.Contains(head, `name="model"`) || strings.Contains(head+";", "name=model;") {
				want = strings.TrimSuffix(body, "\r\n")
			}
		}
		if got := modelInForm([]byte(text), boundary); got != want[:min(len(want), longestModel)] {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

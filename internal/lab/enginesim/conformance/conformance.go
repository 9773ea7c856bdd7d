// Package conformance repeats requests to a real vLLM on another engine, and reports different answers. It
// needs only the engine's address.
package conformance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Target is the engine under test: a prefill server of a text model with 2,048 tokens, with block events and
// --enable-scale-out, and without a tool parser. The decode exchanges need a second engine of the same kind,
// which pulls from the first.
type Target struct {
	URL    string
	Decode string // URL of the decode server; "": its exchanges are skipped
	Model  string // served name on both servers
	// Context is --max-model-len; 0 means 4096.
	Context int
	// NoRequestIDs: the servers run without --enable-request-id-headers.
	NoRequestIDs bool
	// EndPrefill ends the prefill server, and allows the death of the decode server in its last exchange.
	// nil: the deadly exchanges are skipped.
	EndPrefill func() error
}

// capturedContext is --max-model-len of the captured servers.
const capturedContext = 4096

// Difference is a difference between an answer and the captured one.
type Difference struct {
	Exchange string
	What     string // "status", "headers", "body", "text", "no answer"
	Got      string
	Want     string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s\n got %s\nwant %s", d.Exchange, d.What, d.Got, d.Want)
}

// Result is the result of a run.
type Result struct {
	Asked       int
	Skipped     []string // exchanges that need a second engine or would end an engine
	Differences []Difference
}

// Run repeats all exchanges that t allows. With a decode server, it gives back unused transfer params. The
// lease of a second prompt expires, because no answer shows its params. Without a decode server all leases
// expire.
func Run(ctx context.Context, t Target, all []Exchange) Result {
	var r Result
	s := session{Target: t, handed: make(map[string]handover)}
	for _, x := range all {
		if s.skips(x) {
			r.Skipped = append(r.Skipped, x.Name)
			continue
		}
		r.Asked++
		r.Differences = append(r.Differences, s.compare(ctx, x)...)
	}
	if err := s.giveBack(ctx); err != nil {
		r.Differences = append(r.Differences, Difference{"what is left", "no answer", err.Error(), "refused"})
	}
	return r
}

// deadly are the exchanges that need a dead prefill server, or that end the decode server.
var deadly = []string{
	"leg 2 streaming after P died", "leg 2 after P died",
	"kv_transfer_params with only do_remote_prefill: the engine dies", "and stays dead",
}

func (s *session) skips(x Exchange) bool {
	return x.Role == "decode" && (s.Decode == "" || s.EndPrefill == nil && slices.Contains(deadly, x.Name))
}

// otherWords are refusals whose text lists the branches of a Python type, has a value in Python's form, or
// comes from Python's JSON. Only their status is compared.
var otherWords = []string{
	"response_format unknown", "unknown part", "message without role", "logit_bias text value",
	"messages bad json", "responses bad json", "responses input unknown type",
	"responses tools without name", "responses tools unknown type", "responses tools chat form",
	"responses tool_choice unknown", "responses text format unknown",
	"completions prompt object", "completions prompt number", "completions prompt mixed",
	"completions prompt negative id",
}

var (
	variable = regexp.MustCompile(`<dict( of \d+ items)?>`)
	// A refusal by pydantic: the number of wrong values, and the place of each.
	pydantic = regexp.MustCompile(`"\d+ validation errors?:`)
	place    = regexp.MustCompile(`'loc': '[^']*'`)
	behind   = regexp.MustCompile(`","type":.*`)
)

// placed returns the part of a refusal that the simulator must repeat: for pydantic, the number of wrong
// values, their places, and the part behind the text; for others, the whole text.
func placed(body string) string {
	said := pydantic.FindString(body)
	if said == "" {
		return body
	}
	return said + strings.Join(place.FindAllString(body, -1), ",") + behind.FindString(body)
}

func (s *session) compare(ctx context.Context, x Exchange) []Difference {
	differ := func(what, got, want string) []Difference { return []Difference{{x.Name, what, got, want}} }
	if x.Name == deadly[0] {
		s.ended = true
		if err := s.EndPrefill(); err != nil {
			return differ("the end of the prefill server", err.Error(), "ended")
		}
	}
	status, headers, body, err := s.ask(ctx, x)
	switch {
	case x.Status == nil && err == nil:
		return differ("status", fmt.Sprint(status, " ", body), "no answer: the engine is dead")
	case x.Status == nil:
		return nil
	case err != nil:
		return differ("no answer", err.Error(), fmt.Sprint(*x.Status))
	case status != *x.Status:
		return differ("status", fmt.Sprint(status, " ", body), fmt.Sprint(*x.Status, " ", x.Body))
	case x.refusal:
		return s.compareText(x, body)
	}
	s.remember(x.Body, body)
	var all []Difference
	if got, want := HeaderShape(headers), HeaderShape(s.headersOf(x)); got != want {
		all = append(all, differ("headers", got, want)...)
	}
	got, err1 := BodyShape(x.Request.Path, body)
	want, err2 := BodyShape(x.Request.Path, x.Body)
	if err1 != nil || err2 != nil || got != want {
		if x.Request.Path == "/metrics" {
			got, want = without(got, want), without(want, got)
		}
		all = append(all, differ("body", got, want)...)
	}
	return all
}

// without returns the lines of a that b lacks.
func without(a, b string) string {
	has := strings.Split(b, "\n")
	return strings.Join(
		slices.DeleteFunc(strings.Split(a, "\n"), func(line string) bool { return slices.Contains(has, line) }),
		"\n",
	)
}

// compareText compares the text of a refusal.
func (t Target) compareText(x Exchange, body string) []Difference {
	if x.Body == "" ||
		slices.ContainsFunc(otherWords, func(name string) bool { return strings.HasPrefix(x.Name, name) }) {
		return nil
	}
	got := variable.ReplaceAllString(strings.ReplaceAll(body, t.Model, "tiny"), "<dict>")
	want := variable.ReplaceAllString(t.limits(x.Body), "<dict>")
	if placed(got) == placed(want) {
		return nil
	}
	return []Difference{{x.Name, "text", got, want}}
}

// limits replaces the captured context by t's, and the captured context plus one by t's plus one.
func (t Target) limits(text string) string {
	if t.Context == 0 {
		return text
	}
	for more := range 2 {
		text = strings.ReplaceAll(text, fmt.Sprint(capturedContext+more), fmt.Sprint(t.Context+more))
	}
	return text
}

package enginesim

import (
	"regexp"
	"strings"
	"testing"
)

var (
	namesOfStream = regexp.MustCompile(`"id":"[^"]*"|"created":\d+`)
	fingerprintIn = regexp.MustCompile(`,"system_fingerprint":"[^"]*"`)
)

// The last message of a stream has the fingerprint: the chunk with the finish reason or, if requested, the
// usage chunk. There is no other difference between the two.
func TestStreamsNameTheEngineAtTheirEnd(t *testing.T) {
	noLeaks(t)
	bodies := map[string]string{
		"/v1/completions": `{"model":"sim","prompt":"Where do the blocks go?","max_tokens":6,"stream":true`,
		"/v1/chat/completions": `{"model":"sim","messages":[{"role":"user","content":"Where?"}],"max_tokens":6,` +
			`"stream":true`,
	}
	for version, name := range map[string]string{
		"0.32.0": `,"system_fingerprint":"vllm-0.32.0-c9323abc"`, "0.20.0": "",
	} {
		s := startServer(t, Options{Version: version, ZeroLatency: true})
		for path, body := range bodies {
			for _, options := range []string{
				``, `,"stream_options":null`, `,"stream_options":{"include_usage":false,"continuous_usage_stats":true}`,
			} {
				plain := chunks(t, s, path, body+options+"}")
				usage := chunks(t, s, path, body+`,"stream_options":{"include_usage":true}}`)
				n := len(plain)
				if len(usage) != n+1 || plain[n-1] != "[DONE]" ||
					!strings.Contains(usage[n-1], `"choices":[],"usage":{`) {
					t.Fatalf("%s %s: %q\nand %q", version, path, plain, usage)
				}
				if !strings.HasSuffix(plain[n-2], name+"}") || !strings.HasSuffix(usage[n-1], name+"}") {
					t.Errorf("%s %s: the fingerprint is not at the end of %s\nand %s", version, path, plain[n-2],
						usage[n-1])
				}
				plain[n-2] = strings.Replace(plain[n-2], name, "", 1)
				for i, e := range plain[:n-1] {
					if e != usage[i] || fingerprintIn.MatchString(e) || strings.Contains(e, `"usage"`) {
						t.Errorf("%s %s: chunk %d is %s\nand with usage %s", version, path, i, e, usage[i])
					}
				}
			}
		}
	}
}

// With forced usage, every chunk for every client has the usage.
func TestForcedUsageIsInEveryChunk(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{ForceUsage: true, ZeroLatency: true})
	asked := startServer(t, Options{ZeroLatency: true})
	const every = `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`
	for path, last := range map[string]string{
		"/v1/completions":      `,"usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3}}`,
		"/v1/chat/completions": `"completion_tokens":3,"completion_tokens_details":null}}`,
	} {
		body := `{"model":"sim","max_tokens":3,"stream":true,"prompt":[300,301]`
		if path == "/v1/chat/completions" {
			body = `{"model":"sim","max_tokens":3,"stream":true,"messages":[{"role":"user","content":"Where?"}]`
		}
		got := chunks(t, s, path, body+"}")
		if want := chunks(t, asked, path, body+every+"}"); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q\nwant the same as with usage requested: %q", path, got, want)
		}
		for _, e := range got[:len(got)-1] {
			if !strings.Contains(e, `"usage":{"prompt_tokens":`) {
				t.Errorf("%s: no usage in %s", path, e)
			}
		}
		if e := got[len(got)-3]; !strings.HasSuffix(e, last) {
			t.Errorf("%s: the last chunk of the answer is %s, want its end %s", path, e, last)
		}
	}
}

// chunks returns the events of a stream without its id and time.
func chunks(t *testing.T, s *Server, path, body string) []string {
	t.Helper()
	all := stream(t, s, path, body)
	for i, e := range all {
		all[i] = namesOfStream.ReplaceAllString(e, "")
	}
	return all
}

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// HeaderShape returns the headers in order, with the values that do not vary.
func HeaderShape(headers [][2]string) string {
	var b strings.Builder
	for _, h := range headers {
		switch name, value := h[0], h[1]; name {
		case "content-length", "x-request-id":
			fmt.Fprintf(&b, "%s\n", name)
		case "endpoint-load-metrics":
			fmt.Fprintf(&b, "%s: %s\n", name, digitsGone(value))
		default:
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}

func digitsGone(s string) string {
	var b strings.Builder
	last := ' '
	for _, r := range s {
		if r >= '0' && r <= '9' || r == 'e' && last == '0' || r == '-' && last == '0' {
			r = '0'
		}
		if r != '0' || last != '0' {
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// BodyShape returns the body with its values replaced by their types. Runs of equal events count once. An
// error means wrong JSON.
func BodyShape(path, body string) (string, error) {
	switch {
	case path == "/metrics":
		return Series(body), nil
	case strings.HasPrefix(body, "data: ") || strings.HasPrefix(body, "event: "):
		return eventShape(body)
	case body == "":
		return "", nil
	}
	return jsonShape(body)
}

func eventShape(body string) (string, error) {
	var events []string
	for e := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		head, data, _ := strings.Cut(e, "data: ")
		if data != "[DONE]" {
			var err error
			if data, err = jsonShape(data); err != nil {
				return "", err
			}
		}
		events = append(events, head+"data: "+data)
	}
	return strings.Join(slices.Compact(events), "\n") + fmt.Sprint(" ends ", strings.HasSuffix(body, "\n\n")),
		nil
}

// notOurs are prefixes of series that are not the engine's own: those of the Python process and of its HTTP
// server.
var notOurs = []string{"python_", "process_", "http_"}

// varying matches label values that depend on a server's name and configuration.
var varying = regexp.MustCompile(`(model_name)="[^"]*"|\{_block_size_resolved=.*\}`)

// Names returns the series of /metrics that vLLM 0.32.0 always has, with their labels.
func Names(metrics string) map[string]bool {
	names := make(map[string]bool)
	for line := range strings.Lines(metrics) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' || strings.Contains(line, "kv_fetch_by_stage") {
			continue
		}
		if !strings.HasPrefix(line, "process_start_time") &&
			slices.ContainsFunc(notOurs, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
			continue
		}
		names[varying.ReplaceAllString(line[:at], `$1`)] = true
	}
	return names
}

// lengths matches buckets whose bounds depend on the model's context.
var lengths = regexp.MustCompile(
	`^(vllm:request_(?:prompt|generation|max_num_generation|params_max|prefill_kv_computed)` +
		`_?\w*_bucket\{.*)le="\d+\.0"`,
)

// Series returns the sorted names.
func Series(metrics string) string {
	names := make(map[string]bool)
	for name := range Names(metrics) {
		names[lengths.ReplaceAllString(name, `$1`)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "\n")
}

// jsonShape returns the keys in order and the type of each value. A list has the shape of its first element.
func jsonShape(text string) (string, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var b strings.Builder
	if err := shape(d, &b); err != nil {
		return "", fmt.Errorf("%w in %s", err, text)
	}
	return b.String(), nil
}

func shape(d *json.Decoder, b *strings.Builder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		return shapeInside(d, b, v)
	case string:
		b.WriteString("text")
	case json.Number:
		if strings.ContainsAny(v.String(), ".e") {
			b.WriteString("float")
		} else {
			b.WriteString("int")
		}
	case bool:
		b.WriteString("bool")
	case nil:
		b.WriteString("null")
	}
	return nil
}

func shapeInside(d *json.Decoder, b *strings.Builder, open json.Delim) error {
	b.WriteRune(rune(open))
	for i := 0; d.More(); i++ {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "%v:", key)
		}
		var element strings.Builder
		if err := shape(d, &element); err != nil {
			return err
		}
		if open == '{' || i == 0 {
			b.WriteString(element.String() + " ")
		}
	}
	end, err := d.Token()
	b.WriteString(fmt.Sprint(end))
	return err
}

package orchestrator

import (
	"bytes"
	"io"
	"mime/multipart"
	"regexp"
	"slices"
	"strings"
)

// modelInForm returns the field "model" of a form, "" if there is none that can be read.
func modelInForm(form []byte, boundary string) (model string) {
	if boundary == "" {
		return ""
	}
	parts := multipart.NewReader(bytes.NewReader(form), boundary)
	for {
		part, err := parts.NextRawPart()
		if err != nil {
			return model
		}
		if part.FormName() != "model" || part.FileName() != "" {
			continue
		}
		if value, err := io.ReadAll(io.LimitReader(part, longestModel+1)); err == nil {
			model = string(value)
		}
	}
}

// hidesTransfer looks for the names of transfer parameters in a form, whose fields an engine may read as
// JSON, in which a name may be escaped. What is in a recording is never read so, and has any bytes: one of
// some megabytes has an escape by chance.
func hidesTransfer(form []byte, boundary string) bool {
	if bytes.Contains(form, []byte("_transfer_params")) {
		return true
	}
	if boundary == "" {
		return bytes.Contains(form, jsonEscape)
	}
	// No reader sees a boundary where these bytes are not, whatever else it wants around them.
	for part := range bytes.SplitSeq(form, []byte("--"+boundary)) {
		if bytes.Contains(part, jsonEscape) && !isRecording(part) {
			return true
		}
	}
	return false
}

// usualForm reports whether every reader finds the same fields in a form: the form is written in the usual
// way, and the field "model" comes at most once.
func usualForm(form []byte, boundary string) bool {
	delimiter := []byte("--" + boundary)
	rest, begins := bytes.CutPrefix(form, delimiter)
	if !begins || !usualBoundary.MatchString(boundary) {
		return false
	}
	for models := 0; ; {
		part, after, more := bytes.Cut(rest, delimiter) // no reader sees a boundary elsewhere
		if rest = after; !more {
			return string(part) == "--" || string(part) == "--\r\n"
		}
		name, ok := usualField(part)
		if name == "model" {
			models++
		}
		if !ok || models > 1 {
			return false
		}
	}
}

// formFor returns a form with another model. All other bytes stay as they are. ok is false if not every
// reader would find that model.
func formFor(form []byte, boundary, model string) (edited []byte, ok bool) {
	delimiter := []byte("--" + boundary)
	if !usualForm(form, boundary) || strings.ContainsAny(model, "\r\n") ||
		strings.Contains(model, string(delimiter)) {
		return nil, false
	}
	for at := len(delimiter); ; {
		part, _, more := bytes.Cut(form[at:], delimiter)
		if !more {
			return nil, false
		}
		if name, _ := usualField(part); name == "model" {
			head, value, _ := bytes.Cut(part, []byte("\r\n\r\n"))
			end := at + len(part) - len("\r\n")
			begin := at + len(part) - len(value)
			return slices.Concat(form[:begin], []byte(model), form[end:]), !lengthLine.Match(head)
		}
		at += len(part) + len(delimiter)
	}
}

// usualField returns the name of a part of a form, from its boundary on. ok is false if the part is not
// written in the usual way. A model is no file, and not empty.
func usualField(part []byte) (name string, ok bool) {
	rest, begins := bytes.CutPrefix(part, []byte("\r\n"))
	head, body, divided := bytes.Cut(rest, []byte("\r\n\r\n"))
	value, ends := bytes.CutSuffix(body, []byte("\r\n"))
	if !begins || !divided || !ends {
		return "", false
	}
	named, file := 0, false
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if got := anyLine.FindSubmatch(line); got != nil {
			name, file = string(got[1])+string(got[2]), len(got[3]) > 0
			named++
		} else if !otherLine.Match(line) {
			return "", false
		}
	}
	return name, named == 1 && (name != "model" || !file && len(value) > 0)
}

var jsonEscape = []byte(`\u00`)

// isRecording reports whether a part of a form, from its boundary on, is the field "file" to every reader:
// its head has the usual lines alone, and none of the escape.
func isRecording(part []byte) bool {
	rest, ok := bytes.CutPrefix(part, []byte("\r\n"))
	head, _, ends := bytes.Cut(rest, []byte("\r\n\r\n"))
	if !ok || !ends || bytes.Contains(head, jsonEscape) {
		return false
	}
	named := 0
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		switch {
		case fileLine.Match(line):
			named++
		case !otherLine.Match(line):
			return false
		}
	}
	return named == 1
}

var (
	fileLine = regexp.MustCompile(`^(?i:content-disposition): form-data; name="file"; filename="[^"\\\r\n]*"$`)
	// The names are quoted or not. Some clients write the file's name twice.
	anyLine = regexp.MustCompile(`^(?i:content-disposition): form-data; name=(?:"([\w.\[\]-]*)"|([\w.-]+))` +
		`((?:; filename=(?:"[^"\\\r\n]*"|[\w.-]+))?(?:; filename\*=[\w.%'-]+)?)$`)
	usualBoundary = regexp.MustCompile(`^[0-9A-Za-z'()+_,./:=?-]{1,70}$`)
	lengthLine    = regexp.MustCompile(`(?i)\r\ncontent-length:`)
	otherLine     = regexp.MustCompile(`^(?i:content-type|content-length): [!-~][ -~]*$`)
)

package orchestrator

import (
	"bytes"
	"io"
	"mime/multipart"
	"regexp"
	"slices"
	"strings"
)

// modelInForm returns the field "model" of a form; "" if there is no readable one.
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

// hidesTransfer looks for the names of transfer parameters in a form. An engine may read fields of a form as
// JSON, where names may have escapes. A recording is never read as JSON, and a large recording may contain an
// escape by chance.
func hidesTransfer(form []byte, boundary string) bool {
	if bytes.Contains(form, []byte("_transfer_params")) {
		return true
	}
	if boundary == "" {
		return bytes.Contains(form, jsonEscape)
	}
	// Every reader needs these bytes at a boundary, besides its other conditions.
	for part := range bytes.SplitSeq(form, []byte("--"+boundary)) {
		if bytes.Contains(part, jsonEscape) && !isRecording(part) {
			return true
		}
	}
	return false
}

// usualForm reports whether every reader finds the same fields in a form: the form is written in the usual
// way, and the field "model" occurs at most once.
func usualForm(form []byte, boundary string) bool {
	delimiter := []byte("--" + boundary)
	rest, begins := bytes.CutPrefix(form, delimiter)
	if !begins || !usualBoundary.MatchString(boundary) {
		return false
	}
	for models := 0; ; {
		part, after, more := bytes.Cut(rest, delimiter) // every reader finds a boundary only here
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

// formFor returns a form with another model. All other bytes stay the same. ok is false if not every reader
// would find this model.
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

// usualField returns the name of a part of a form, which starts at its boundary. ok is false if the part is
// not written in the usual way. A model must not be a file, and must not be empty.
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

// isRecording reports whether every reader takes a part of a form, which starts at its boundary, for the
// field "file": its head has only the usual lines, without escapes.
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
	// The names may have quotes. Some clients write the file's name twice.
	anyLine = regexp.MustCompile(`^(?i:content-disposition): form-data; name=(?:"([\w.\[\]-]*)"|([\w.-]+))` +
		`((?:; filename=(?:"[^"\\\r\n]*"|[\w.-]+))?(?:; filename\*=[\w.%'-]+)?)$`)
	usualBoundary = regexp.MustCompile(`^[0-9A-Za-z'()+_,./:=?-]{1,70}$`)
	lengthLine    = regexp.MustCompile(`(?i)\r\ncontent-length:`)
	otherLine     = regexp.MustCompile(`^(?i:content-type|content-length): [!-~][ -~]*$`)
)

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A key file has one key on each line, as a JSON object with the fields of [Key]. Empty lines and comments,
// which begin with a hash sign, are skipped. The file holds hashes only, so that a reader of the file learns
// no key. No message about the file repeats its text: an operator may have put a secret there by mistake.

// mostKeyProblems bounds the problems that are reported of one key file.
const mostKeyProblems = 20

// readKeys reads the secrets of the keys of c, and its key file.
func readKeys(ck *checker, c *Config) {
	for i := range c.Keys {
		ck.resolve(fmt.Sprintf("keys[%d].secret", i), &c.Keys[i].Secret)
	}
	defer checkClassKeys(ck, c)
	defer checkDistinct(ck, c)
	if c.FileKeys = nil; c.KeysFile == "" {
		return
	}
	data, err := readFile(c.KeysFile)
	if err != nil {
		ck.add("keys_file", err.Error(), "make the file readable or name another")
		return
	}
	var problems Problems
	c.FileKeys, problems = parseKeys(c.KeysFile, data)
	ck.problems = append(ck.problems, problems...)
	if len(problems) == 0 && len(c.ClientKeys()) == 0 { // nobody would be let in
		ck.add("keys_file", "has no key", "add a line that `tandem key new` prints, or leave keys_file out")
	}
}

// parseKeys reads the content of a key file. It returns the keys without problems, and the first problems.
func parseKeys(path string, data []byte) (list []Key, problems Problems) {
	number := 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		before := len(problems)
		add := func(field, message, fix string) {
			p := Problem{File: path, Line: number, Column: 1, Field: field, Message: message, Fix: fix}
			problems = append(problems, p)
		}
		k := parseKey(text, add)
		if k.Line = number; len(problems) == before {
			list = append(list, k)
		}
		if len(problems) >= mostKeyProblems {
			return list, problems
		}
	}
	return list, problems
}

// parseKey reads one line.
func parseKey(text []byte, add func(field, message, fix string)) (k Key) {
	const fix = `write an object such as {"name": "team-a", "sha256": "…"}, as ` + "`tandem key new` prints it"
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&k)
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case isType && slices.Contains(keyFields, wrong.Field):
		add(wrong.Field, "has a value of another type", "put text in quotes, and write numbers without quotes")
		return k
	case err != nil && strings.Contains(err.Error(), `unknown field "secret"`):
		add("secret", "is not taken from a key file, which holds hashes only", "write sha256 in its place")
		return k
	case err != nil && strings.Contains(err.Error(), "unknown field"):
		add("", "the line has a field that is not known", "use only "+strings.Join(keyFields, ", "))
		return k
	case err != nil:
		add("", "the line is not one JSON object", fix)
		return k
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		add("", "the line has more than one JSON object", fix)
		return k
	}
	if k.check(add); k.SHA256 == "" {
		add("sha256", "is empty", "write the 64 hex digits that `tandem key new` prints")
	}
	return k
}

// keyFields are the fields of a line.
var keyFields = []string{
	"name", "sha256", "tenant", "models", "class", "classes", "weight",
	"requests_per_minute", "tokens_per_minute", "requests_at_once", "kv_tokens_at_once", "kv_hints",
}

// KeyLine returns the line of k in a key file, without a line break. The error says what is wrong with k.
func KeyLine(k Key) (string, error) {
	line, err := json.Marshal(k)
	if err != nil {
		return "", err
	}
	if _, problems := parseKeys("", line); len(problems) > 0 {
		return "", errors.New(problems[0].Field + " " + problems[0].Message + "; " + problems[0].Fix)
	}
	return string(line), nil
}

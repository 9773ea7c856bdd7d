package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// This file says what to write instead of the usual slips of a hand edit.

// yamlFix says what to do about the usual slips, judging by the parser's message.
func yamlFix(message string) string {
	for says, fix := range yamlFixes {
		if strings.Contains(message, says) {
			return "; " + fix
		}
	}
	return ""
}

var yamlFixes = map[string]string{
	"non-map value is specified":           "write a colon and a space behind the field's name",
	"value is not allowed in this context": "indent it as far as the fields beside it, with spaces",
	"cannot start any token":               "indent with spaces, and quote text that begins with a sign",
	"end token":                            "close the bracket",
	"unexpected key name":                  "put a space behind the colon",
	"could not find end character":         "close the quotes",
}

// fieldsFix says what to write where fields of type t belong and n stands. The text of n is not repeated,
// because it may be a secret.
func fieldsFix(n ast.Node, t reflect.Type, field string) string {
	text, _ := textOf(n)
	if key := glued(text, t); key != "" {
		return gluedFix(key)
	}
	_, list := n.(*ast.SequenceNode)
	if t == reflect.TypeFor[Pool]() && (list || strings.Contains(text, "://")) {
		return fmt.Sprintf("write %s: {replicas: [http://HOST:PORT]}", field[strings.LastIndexByte(field, '.')+1:])
	}
	return "write one of " + strings.Join(keysOf(t), ", ") + " under it"
}

// glued returns the field of t that text begins with, if a colon without a space follows the field: YAML then
// takes both for one text. It returns "" for any other text.
func glued(text string, t reflect.Type) string {
	key, _, colon := strings.Cut(text, ":")
	if !colon || !slices.Contains(keysOf(t), key) {
		return ""
	}
	return key
}

func gluedFix(key string) string { return fmt.Sprintf(`put a space behind the colon of "%s:"`, key) }

package config

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// position is where a node begins in the file, nil where the parser does not say.
func position(n ast.Node) *token.Position {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return nil
	}
	if pairs, ok := pairsOf(n); ok && len(pairs) > 0 && pairs[0].Key != nil {
		return pairs[0].Key.GetToken().Position
	}
	if t := n.GetToken(); t != nil {
		return t.Position
	}
	return nil
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}, true
	}
	return nil, false
}

func keyName(k ast.MapKeyNode) (string, bool) {
	s, ok := k.(*ast.StringNode)
	if !ok {
		return "", false
	}
	return s.Value, true
}

func textOf(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

func intOf(n ast.Node) (int64, bool) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch v := i.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= 1<<62
	}
	return 0, false
}

func floatOf(n ast.Node) (float64, bool) {
	if f, ok := n.(*ast.FloatNode); ok {
		return f.Value, !math.IsInf(f.Value, 0) && !math.IsNaN(f.Value)
	}
	i, ok := intOf(n)
	return float64(i), ok
}

func kindOf(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		if _, err := strconv.ParseFloat(v.Value, 64); err == nil && v.GetToken().Type == token.StringType {
			return "a number that is too large"
		}
		return "text"
	case *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a number"
	case *ast.FloatNode:
		return "a number with a point"
	case *ast.InfinityNode, *ast.NanNode:
		return "no finite number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "an object"
	}
	return "something else"
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[Goal]():
		return "a duration"
	case reflect.TypeFor[Refusal]():
		return "a duration or never"
	case reflect.TypeFor[Bytes]():
		return "a size"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	}
	return "a number"
}

// fieldsOf goes over the fields of t that are in the file, by their names there. The fields of an embedded
// struct stand among the others.
func fieldsOf(t reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			k, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if k != "" && k != "-" && !yield(k, f) {
				return
			}
		}
	}
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for k := range fieldsOf(t) {
		keys = append(keys, k)
	}
	return keys
}

func fieldByKey(v reflect.Value, name string) (reflect.Value, bool) {
	for k, f := range fieldsOf(v.Type()) {
		if k == name {
			return v.FieldByIndex(f.Index), true
		}
	}
	return reflect.Value{}, false
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// didYouMean suggests the nearest of known, or lists them all.
func didYouMean(name string, known []string) string {
	if best := Nearest(name, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// Nearest returns the known name that differs from name in the fewest letters. It returns "" if every name
// differs in three letters or more.
func Nearest(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if n := distance(strings.ToLower(name), k); n < least && n < len(k) {
			best, least = k, n
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace between a and b.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{cost, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}

// preset fills in the defaults of an element of a list.
func preset(element reflect.Value) {
	if t, ok := reflect.TypeAssert[*Target](element.Addr()); ok {
		t.Weight = 1
	}
}

// shortForms has the objects that the file may have as a plain text, and the field that the text gives.
var shortForms = map[reflect.Type]string{
	reflect.TypeFor[Replica](): "url",
	reflect.TypeFor[Target]():  "model",
}

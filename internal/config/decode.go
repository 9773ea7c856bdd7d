package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// maxValues bounds what aliases can unfold to.
const maxValues = 100_000

// decoder fills the structs from a syntax tree. Unlike a plain unmarshal it continues after a problem, so
// that it reports all problems at once. It remembers the place of each field, so that a contradiction found
// later has a line too.
type decoder struct {
	problems Problems
	at       map[string]*token.Position // field path -> where it stands in the file
	anchors  map[string]ast.Node
	values   int
	depth    int
}

func newDecoder(root ast.Node) *decoder {
	d := &decoder{at: map[string]*token.Position{}, anchors: map[string]ast.Node{}}
	ast.Walk(d, root)
	return d
}

// Visit collects anchors; it makes decoder an [ast.Visitor].
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil && a.Value != nil {
		d.anchors[a.Name.GetToken().Value] = a.Value
	}
	return d
}

func (d *decoder) problem(pos *token.Position, field, message, fix string) {
	p := Problem{Field: field, Message: message, Fix: fix}
	if pos != nil {
		p.Line, p.Column = pos.Line, pos.Column
	}
	d.problems = append(d.problems, p)
}

// value writes what n says into dst. An empty value (null) leaves the default.
func (d *decoder) value(n ast.Node, dst reflect.Value, field string) {
	if d.values++; d.values > maxValues || d.depth > 64 {
		if d.values <= maxValues || d.values == maxValues+1 {
			d.problem(position(n), field, "the file unfolds to too much", "use fewer aliases")
		}
		d.values = max(d.values, maxValues+1)
		return
	}
	d.depth++
	defer func() { d.depth-- }()
	n, ok := d.plain(n, field)
	if !ok {
		return
	}
	if _, empty := n.(*ast.NullNode); empty {
		return
	}
	if dst.Kind() == reflect.String || dst.Type() == reflect.TypeFor[Replica]() {
		if address, ok := addressOf(n); ok {
			n = address
		}
	}
	switch {
	case dst.Type() == reflect.TypeFor[Alpha](), dst.Kind() != reflect.Struct && dst.Kind() != reflect.Slice:
		d.scalar(n, dst, field)
	case dst.Kind() == reflect.Slice:
		d.list(n, dst, field)
	default:
		d.object(n, dst, field)
	}
}

// plain takes anchors, aliases and the tags that change nothing off a value.
func (d *decoder) plain(n ast.Node, field string) (ast.Node, bool) {
	for range 32 {
		switch v := n.(type) {
		case nil:
			return nil, false
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := d.anchors[v.Value.GetToken().Value]
			if !ok {
				d.problem(position(v), field, fmt.Sprintf("there is no anchor %q", v.Value.GetToken().Value),
					"write & and the name at the value it stands for")
				return nil, false
			}
			n = target
		case *ast.TagNode:
			d.problem(position(v), field, fmt.Sprintf("the tag %s is not used here", v.Start.Value), "leave it out")
			return nil, false
		default:
			return n, true
		}
	}
	d.problem(position(n), field, "aliases go in a circle", "write the value itself")
	return nil, false
}

func (d *decoder) object(n ast.Node, dst reflect.Value, field string) {
	_, scalar := n.(ast.ScalarNode)
	if name := shortForms[dst.Type()]; scalar && name != "" {
		f, _ := fieldByKey(dst, name)
		d.scalar(n, f, field)
		d.at[join(field, name)] = position(n)
		return
	}
	pairs, ok := pairsOf(n)
	if !ok {
		d.problem(position(n), field, "is "+kindOf(n)+" where fields belong", fieldsFix(n, dst.Type(), field))
		return
	}
	d.merged(pairs, dst, field)
	first := map[string]*token.Position{}
	for _, pair := range pairs {
		d.pair(pair, dst, field, first)
	}
}

// merged applies the << keys first, so that the object's own keys win.
func (d *decoder) merged(pairs []*ast.MappingValueNode, dst reflect.Value, field string) {
	for _, pair := range pairs {
		if pair.Key == nil || !pair.Key.IsMergeKey() {
			continue
		}
		if list, ok := pair.Value.(*ast.SequenceNode); ok {
			for _, n := range slices.Backward(list.Values) { // the first one wins
				d.value(n, dst, field)
			}
			continue
		}
		d.value(pair.Value, dst, field)
	}
}

func (d *decoder) pair(
	pair *ast.MappingValueNode, dst reflect.Value, field string, first map[string]*token.Position,
) {
	if pair.Key == nil || pair.Key.IsMergeKey() {
		return
	}
	pos := position(pair.Key)
	name, ok := keyName(pair.Key)
	if !ok {
		d.problem(pos, field, "has a key that is not a plain name",
			"write one of "+strings.Join(keysOf(dst.Type()), ", "))
		return
	}
	path := join(field, name)
	if before := first[name]; before != nil {
		d.problem(pos, path, fmt.Sprintf("stands here for the second time, first in line %d", before.Line),
			"keep one of them")
		return
	}
	first[name] = pos
	if field == "" && strings.HasPrefix(name, "x-") {
		return // a place for anchors
	}
	f, ok := fieldByKey(dst, name)
	if !ok {
		message, fix := unknown(formerField{dst.Type(), name}, path)
		d.problem(pos, path, message, fix)
		return
	}
	d.at[path] = pos
	if n, ok := d.target(pair.Value).(ast.ScalarNode); ok {
		d.at[path] = cmp.Or(position(n), pos)
	}
	d.value(pair.Value, f, path)
}

// target follows an anchor or alias once without complaint.
func (d *decoder) target(n ast.Node) ast.Node {
	switch v := n.(type) {
	case *ast.AnchorNode:
		return v.Value
	case *ast.AliasNode:
		return d.anchors[v.Value.GetToken().Value]
	}
	return n
}

func (d *decoder) list(n ast.Node, dst reflect.Value, field string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.problem(position(n), field, "is "+kindOf(n)+" where a list belongs", `write each element behind a "-"`)
		return
	}
	dst.SetZero()
	if len(seq.Values) > 0 {
		dst.Set(reflect.MakeSlice(dst.Type(), len(seq.Values), len(seq.Values)))
	}
	for i, v := range seq.Values {
		path := fmt.Sprintf("%s[%d]", field, i)
		d.at[path] = position(v)
		if _, empty := v.(*ast.NullNode); empty || v == nil {
			d.problem(position(v), path, "is empty", "write an element or leave the line out")
			continue
		}
		preset(dst.Index(i))
		d.value(v, dst.Index(i), path)
	}
}

// scalar reads one leaf. The text of a secret never gets into a message: only its kind does.
//
// Long: a case a type.
func (d *decoder) scalar(n ast.Node, dst reflect.Value, field string) {
	wrong := func(fix string) {
		d.problem(position(n), field, "is "+kindOf(n)+" where "+typeName(dst.Type())+" belongs", fix)
	}
	text, isText := textOf(n)
	switch dst.Interface().(type) {
	case time.Duration:
		d.duration(n, dst, field)
		return
	case Goal, Refusal:
		d.goal(n, dst, field)
		return
	case Bytes:
		d.bytes(n, dst, field)
		return
	case Alpha:
		d.alpha(n, dst, field)
		return
	case NamedPort:
		if i, number := intOf(n); number {
			text, isText = strconv.FormatInt(i, 10), true
		}
	}
	switch dst.Kind() {
	case reflect.String:
		if !isText {
			wrong(textFix(n, field))
			return
		}
		dst.SetString(text)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			wrong("write true or false")
			return
		}
		dst.SetBool(b.Value)
	case reflect.Int:
		i, ok := intOf(n)
		if !ok {
			wrong("write a number without a point or unit")
			return
		}
		dst.SetInt(i)
	case reflect.Float64:
		f, ok := floatOf(n)
		if !ok {
			wrong("write a number such as 0.25")
			return
		}
		if dst.SetFloat(f); dst.Type() == reflect.TypeFor[Weight]() {
			dst.Addr().Interface().(*Weight).set(f)
		}
	default:
		panic("config: no reader for " + dst.Type().String())
	}
}

// textFix says what to write in the place of a number or a truth value.
func textFix(n ast.Node, field string) string {
	if i, ok := intOf(n); ok && strings.HasSuffix(field, "listen") {
		return fmt.Sprintf(`write ":%d" for a port`, i)
	}
	if _, ok := n.(*ast.BoolNode); ok {
		return "write one of the words of this field, as in docs/configuration.md"
	}
	return "put quotes around it"
}

func (d *decoder) duration(n ast.Node, dst reflect.Value, field string) {
	const fix = `write a number and a unit, such as "250ms", "15s" or "2m"`
	if i, ok := intOf(n); ok && i == 0 {
		dst.SetInt(0)
		return
	}
	if i, ok := intOf(n); ok {
		d.problem(position(n), field, "has no unit",
			fmt.Sprintf(`write "%ds" for seconds, "%dms" for milliseconds`, i, i))
		return
	}
	text, ok := textOf(n)
	if !ok {
		d.problem(position(n), field, "is "+kindOf(n)+" where a duration belongs", fix)
		return
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		d.problem(position(n), field, fmt.Sprintf("%q is not a duration", text), fix)
		return
	}
	dst.SetInt(int64(v))
}

func (d *decoder) bytes(n ast.Node, dst reflect.Value, field string) {
	const fix = `write a whole number and a unit, such as "64MiB", "3GB" or "4096"`
	text, ok := textOf(n)
	if !ok {
		f, isNumber := floatOf(n)
		if !isNumber || f != math.Trunc(f) || f < 0 || f >= 1<<53 {
			message := "is " + kindOf(n) + " where a size belongs"
			if isNumber {
				message = fmt.Sprintf("%v is not a size", f)
			}
			d.problem(position(n), field, message, fix)
			return
		}
		dst.SetInt(int64(f))
		return
	}
	b, err := ParseBytes(text)
	if err != nil {
		d.problem(position(n), field, err.Error(), fix)
		return
	}
	dst.SetInt(int64(b))
}

func (d *decoder) alpha(n ast.Node, dst reflect.Value, field string) {
	if text, ok := textOf(n); ok && text == "auto" {
		dst.Set(reflect.ValueOf(Alpha{Auto: true}))
		return
	}
	f, ok := floatOf(n)
	if !ok {
		d.problem(position(n), field, "is "+kindOf(n)+` where a number or "auto" belongs`,
			`write auto or a number from 0 up`)
		return
	}
	dst.Set(reflect.ValueOf(Alpha{Value: f}))
}

package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds the configuration file and each file it names.
const maxFile = 4 << 20

// Load reads the file at path, and the secrets and certificates that it names. Relative file names start at
// the folder of path; in the result they are absolute. The error is [Problems] when the content is wrong.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	doc, err := parseAt(path, data)
	if err != nil {
		return nil, err
	}
	return doc.resolved()
}

// parseAt parses the file at path. It refuses an empty file, which is no configuration without replicas: an
// editor that writes in place leaves a file empty for a moment.
func parseAt(path string, data []byte) (*document, error) {
	if blank(data) {
		return nil, Problems{{
			File: path, Message: "is empty", Fix: "name at least the replicas, under pools",
		}}
	}
	doc, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	doc.config.anchor(path)
	return doc, nil
}

func blank(data []byte) bool { return len(bytes.TrimSpace(data)) == 0 }

// Parse reads a configuration without looking at anything else: secrets that stand in files or in the
// environment are not resolved, certificates not opened and relative file names left as they are. name stands
// before each problem. The error is [Problems].
func Parse(name string, data []byte) (*Config, error) {
	doc, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	return doc.config, nil
}

// ParseFile is [Parse] of a file.
func ParseFile(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// document is a configuration with the places of its fields in the file.
type document struct {
	name   string
	config *Config
	at     map[string]*token.Position
}

func parse(name string, data []byte) (*document, error) {
	if len(data) > maxFile {
		return nil, Problems{{
			File: name, Message: fmt.Sprintf("is larger than %v", Bytes(maxFile)),
			Fix: "this is hardly a configuration file",
		}}
	}
	root, err := syntax(data)
	if err != nil {
		return nil, Problems{syntaxProblem(name, err)}
	}
	doc := &document{name: name, config: Default()}
	problems := doc.decode(root)
	doc.follow()
	doc.config.fill()
	return doc, doc.report(append(problems, doc.located(problems.without(doc.config.check()))...))
}

// without leaves out of later what only follows from ps: problems of a field that could not be read, and of
// fields in it.
func (ps Problems) without(later Problems) Problems {
	return slices.DeleteFunc(later, func(p Problem) bool {
		return slices.ContainsFunc(ps,
			func(q Problem) bool { return q.Field == p.Field || strings.HasPrefix(p.Field, q.Field+".") })
	})
}

// syntax returns the root of the one document in data, nil when there is nothing in it. The parser of the
// library panics on some inputs. Such a panic becomes an error of the file.
func syntax(data []byte) (root ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, fmt.Errorf("is not YAML: the parser gave up (%v)", p)
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if err := shallow(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			return nil, &yaml.SyntaxError{
				Message: "it holds a second document here; keep one, without a --- between", Token: doc.Body.GetToken(),
			}
		}
		root = doc.Body
	}
	return root, nil
}

func syntaxProblem(name string, err error) Problem {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok {
		return Problem{File: name, Message: err.Error()}
	}
	// Not e.Error(), which prints the file, and takes as long for it as parsing does.
	p := Problem{File: name, Message: "is not YAML: " + e.GetMessage() + yamlFix(e.GetMessage())}
	if t := e.GetToken(); t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}

func (doc *document) decode(root ast.Node) Problems {
	if root == nil {
		return nil
	}
	d := newDecoder(root)
	d.value(root, reflect.ValueOf(doc.config).Elem(), "")
	doc.at = d.at
	return d.problems
}

// follow sets fields that follow from others: no more requests can wait than may be in flight.
func (doc *document) follow() {
	if l := &doc.config.Limits; doc.at["limits.queue"] == nil && l.InFlight > 0 {
		l.Queue = min(l.Queue, l.InFlight)
	}
}

// located gives problems the place of their field, or of the nearest field around it that stands in the file.
func (doc *document) located(ps Problems) Problems {
	for i, p := range ps {
		if p.File != "" {
			continue
		}
		if pos := doc.position(p.Field); pos != nil {
			ps[i].Line, ps[i].Column = pos.Line, pos.Column
		}
	}
	return ps
}

func (doc *document) position(field string) *token.Position {
	for field != "" {
		if pos := doc.at[field]; pos != nil {
			return pos
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return nil
}

// report returns ps in the order of the file as an error, nil when there are none.
func (doc *document) report(ps Problems) error {
	if len(ps) == 0 {
		return nil
	}
	for i := range ps {
		ps[i].File = cmp.Or(ps[i].File, doc.name)
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if a.File != b.File { // the lines of a key file stand last
			if a.File == doc.name {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}

// readFile reads a regular file. It refuses a pipe, which could make it wait for a writer.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // or to open a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s, and not a regular file", path, modeKind(info.Mode()))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %v", path, Bytes(maxFile))
	}
	return data, nil
}

// modeKind names the kind of a file that is not regular.
func modeKind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	}
	return "a device or socket"
}

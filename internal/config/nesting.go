package config

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// What the parser takes grows with the square of the depth of a file and of the keys of one object in it. A
// configuration has a depth of 8 and 20 keys.
const (
	maxDepth = 64
	maxKeys  = 1024
)

// nesting is the collections that are open at a place of a file.
type nesting []level

// level is one collection.
type level struct {
	column int // of its keys or dashes; 0 between brackets, where columns say nothing
	keys   int
}

// shallow returns an error where a file is deeper, or an object in it has more keys, than the parser can be
// given.
func shallow(tokens token.Tokens) error {
	var open nesting
	for _, t := range tokens {
		open.read(t)
		message := ""
		switch n := len(open); {
		case n > maxDepth:
			message = fmt.Sprintf("it is nested more than %d deep here", maxDepth)
		case n > 0 && open[n-1].keys > maxKeys:
			message = fmt.Sprintf("it has an object of more than %d keys here", maxKeys)
		}
		if message != "" {
			return &yaml.SyntaxError{Message: message, Token: t}
		}
	}
	return nil
}

func (n *nesting) read(t *token.Token) {
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		*n = append(*n, level{})
	case token.SequenceEndType, token.MappingEndType:
		n.close()
	case token.SequenceEntryType, token.MappingKeyType:
		n.at(t.Position.Column)
	case token.MappingValueType:
		if t.Prev != nil {
			n.at(t.Prev.Position.Column).keys++
		}
	}
}

// close ends the innermost brackets and everything open inside them.
func (n *nesting) close() {
	for i, l := range slices.Backward(*n) {
		if l.column == 0 {
			*n = (*n)[:i]
			return
		}
	}
}

// at returns the collection that has a key or dash in this column. Within brackets that is the innermost
// one, wherever it stands.
func (n *nesting) at(column int) *level {
	for len(*n) > 0 && (*n)[len(*n)-1].column > column {
		*n = (*n)[:len(*n)-1]
	}
	if last := len(*n) - 1; last >= 0 && ((*n)[last].column == column || (*n)[last].column == 0) {
		return &(*n)[last]
	}
	*n = append(*n, level{column: column})
	return &(*n)[len(*n)-1]
}

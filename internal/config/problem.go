package config

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with a configuration, where it is and how to put it right.
type Problem struct {
	File         string // "" where the configuration did not come from a file
	Line, Column int    // from 1; 0 unknown
	Field        string // path, such as pools.prefill.replicas[0].url; "" for the file as a whole
	Message      string
	Fix          string
}

func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Problems is everything wrong with a configuration, in the order of the file; never empty when it is
// returned as an error.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

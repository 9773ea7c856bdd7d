// Package house reads the tables of rooms in ARCHITECTURE.md. Its tests keep the layout of the module.
package house

import (
	"regexp"
	"strings"
)

// Row is a row of a table of rooms. Rooms that share a row have the same arrows.
type Row struct {
	Rooms    []string // folders
	Sentence string   // what the rooms are for
	Imports  string   // rooms that these rooms may import, in the words of the table
}

var (
	row    = regexp.MustCompile("(?m)^\\| (`[a-z0-9/`, ]+`) \\| (.+) \\| ([^|]+) \\|$")
	folder = regexp.MustCompile("`([a-z0-9/]+)`")
)

// Rows returns the rows of all tables of rooms in a text, top to bottom.
func Rows(text string) (rows []Row) {
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		one := Row{Sentence: m[2], Imports: strings.TrimSpace(m[3])}
		for _, name := range folder.FindAllStringSubmatch(m[1], -1) {
			one.Rooms = append(one.Rooms, name[1])
		}
		rows = append(rows, one)
	}
	return rows
}

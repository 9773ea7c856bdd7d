package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// limitsFile lists, in a checkout, the exceptions to the general limits.
const limitsFile = "tools/measure/limits.txt"

// limits are the numbers of limitsFile, by what they count and where.
type limits map[string]int

// readLimits reads a checkout's limits. A line has a kind of count, a place and the most allowed. Without the
// file, only the general limits hold.
func readLimits(dir string) (limits, error) {
	text, err := os.ReadFile(filepath.Join(dir, limitsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l, line := limits{}, 0
	for rows := bufio.NewScanner(bytes.NewReader(text)); rows.Scan(); {
		line++
		row := strings.TrimSpace(rows.Text())
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		i := strings.LastIndex(row, " ")
		n, err := strconv.Atoi(row[i+1:])
		if i < 0 || err != nil {
			return nil, fmt.Errorf("%s:%d: want what, where and a number, have %q", limitsFile, line, row)
		}
		l[strings.TrimSpace(row[:i])] = n
	}
	return l, nil
}

// against names each count over its limit, and each limit for something that no longer exists.
//
// A struct may hold manyValues values. In the product, a type may have methods in manyPlaces files, a ring
// may have a third of its package's files or fewFiles, and no expression may go through three owners. The
// limits file names the exceptions. All other counts are limited only if the file names them.
func (l limits) against(t tree, pages []document) []string {
	counted, aims := map[string]int{}, map[string]int{}
	for _, x := range t[whole].states.values {
		counted["values "+x.name], aims["values "+x.name] = x.n, manyValues
	}
	for _, r := range t[whole].rings {
		r.into(counted, aims)
	}
	decision, product := t.sizeOf(decides), t.sizeOf(ships)
	counted["constants decision"] = decision.constants
	counted["lines decision"], counted["lines product"] = decision.lines, product.lines
	t[whole].comment.prose.into(counted, "comments")
	pages[len(pages)-1].into(counted, "documents")
	var out []string
	for what, n := range counted {
		most, named := l[what]
		if !named {
			most, named = aims[what]
		}
		if named && n > most {
			out = append(out, fmt.Sprintf("%s: %d, over %d", what, n, most))
		}
	}
	for what := range l {
		if _, is := counted[what]; !is {
			out = append(out, fmt.Sprintf("%s: nothing has that name now: delete the line in %s",
				what, limitsFile))
		}
	}
	slices.Sort(out)
	return out
}

// fewFiles files may form a ring in any package: a reader can read this many together.
const fewFiles = 4

// into adds the counts of a package under their names in limitsFile, and their limits if limitsFile has none.
func (r ring) into(counted, aims map[string]int) {
	ring, chains := "ring "+r.folder, "chains "+r.folder
	counted[ring], counted[chains] = r.files, r.chains
	if !ships(r.folder) {
		return
	}
	aims[ring], aims[chains] = max(fewFiles, r.of/3), 0
	for _, x := range r.methods {
		counted["methods "+x.name], aims["methods "+x.name] = x.n, manyPlaces
	}
}

// into adds the counts of prose under their names in limitsFile.
func (p prose) into(counted map[string]int, where string) {
	counted["long-sentences "+where] = p.long
	counted["vague "+where] = p.vague
	counted["who "+where] = p.who
}

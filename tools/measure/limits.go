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

// limitsFile has what is beyond the aims, in a checkout.
const limitsFile = "tools/measure/limits.txt"

// limits are the numbers of limitsFile, by what they count and where.
type limits map[string]int

// readLimits reads a checkout's limits: a line is what is counted, where, and how many there may be.
// A checkout without the file has no limits but the aims.
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

// against names each count that is beyond its limit, and each limit of something that is gone.
//
// A struct may hold manyValues values. In the product, a type may have methods in manyPlaces files, a ring
// may have a third of the files of its package or fewFiles, and no expression goes through three owners. The
// limits file names the exceptions. Everything else is limited where the file names it.
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
			out = append(out, fmt.Sprintf("%s: nothing has that name now: delete the line in %s", what, limitsFile))
		}
	}
	slices.Sort(out)
	return out
}

// fewFiles may be in a ring in any package: so many are read at once.
const fewFiles = 4

// into gives the counts of a package the names that they have in limitsFile, and their limits without a line
// there.
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

// into gives the counts of prose the names that they have in limitsFile.
func (p prose) into(counted map[string]int, where string) {
	counted["long-sentences "+where] = p.long
	counted["vague "+where] = p.vague
	counted["who "+where] = p.who
}

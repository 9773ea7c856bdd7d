package openai

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// answer is where the parts of an engine's answer lie that a merge touches.
type answer struct {
	data    []byte
	id      span // with quotes
	choices span // with brackets
	usage   span
	each    []choice
}

// choice is one element of choices and where in it the index is.
type choice struct{ all, index span }

// parts finds the parts. Each is empty when it is not there.
func parts(data []byte) (answer, error) {
	a := answer{data: data}
	s := scanner(data)
	for key := range s.Members() {
		c := s.Peek()
		at := span{start: s.Pos}
		if rawjson.Equal(key, "choices") && c == '[' {
			for range s.Elements() {
				a.each = append(a.each, choiceAt(&s))
			}
		} else {
			s.Skip()
		}
		at.end = s.Pos
		switch {
		case rawjson.Equal(key, "choices"):
			a.choices = at
		case rawjson.Equal(key, "id"):
			a.id = at
		case rawjson.Equal(key, "usage") && c == '{':
			a.usage = at
		}
	}
	s.End()
	return a, s.Err()
}

func choiceAt(s *rawjson.Scanner) choice {
	c := s.Peek()
	ch := choice{all: span{start: s.Pos}}
	if c != '{' {
		s.Skip()
	} else {
		for key := range s.Members() {
			s.Peek()
			at := span{start: s.Pos}
			s.Skip()
			if at.end = s.Pos; rawjson.Equal(key, "index") {
				ch.index = at
			}
		}
	}
	ch.all.end = s.Pos
	return ch
}

// renumber appends the choice with its index set.
func (a *answer) renumber(dst []byte, ch choice, index int) []byte {
	if ch.index.end == 0 {
		return append(dst, ch.all.of(a.data)...)
	}
	dst = append(dst, a.data[ch.all.start:ch.index.start]...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	return append(dst, a.data[ch.index.end:ch.all.end]...)
}

// MergeAnswers makes one answer of the answers to the prompts of a batch: choices in order, usage summed, the
// first answer's other fields, id when it is not "".
func MergeAnswers(answers [][]byte, id string) ([]byte, error) {
	if len(answers) == 0 {
		return nil, fmt.Errorf("merge answers: none given")
	}
	var first answer
	choices := []byte{'['}
	var usages [][]byte
	n := 0
	for i, data := range answers {
		a, err := parts(data)
		if err != nil {
			return nil, fmt.Errorf("merge answer %d: %w", i, err)
		}
		if i == 0 {
			first = a
		}
		for _, ch := range a.each {
			if n > 0 {
				choices = append(choices, ',')
			}
			choices = a.renumber(choices, ch, n)
			n++
		}
		usages = append(usages, a.usage.of(data))
	}
	patches := first.patches(id)
	if first.choices.end > 0 {
		patches = append(patches, patch{first.choices, append(choices, ']')})
	}
	if first.usage.end > 0 {
		patches = append(patches, patch{first.usage, sumUsage(usages)})
	}
	return apply(nil, first.data, sorted(patches)), nil
}

// patches returns the patches that set the id and remove transfer params.
func (a *answer) patches(id string) []patch {
	f := Kind(0).Find(a.data)
	patches := f.secrets
	if id != "" && a.id.end > 0 {
		patches = append(patches, patch{a.id, rawjson.AppendString(nil, id)})
	}
	return patches
}

func sorted(patches []patch) []patch {
	slices.SortFunc(patches, func(a, b patch) int { return cmp.Compare(a.at.start, b.at.start) })
	return patches
}

// RewriteChunk appends a stream chunk's data to dst with its id (unless "") and the index of its choices
// set, and without transfer params. Data that is not JSON stays unchanged.
func RewriteChunk(dst, data []byte, id string, index int) []byte {
	a, err := parts(data)
	if err != nil {
		return append(dst, data...)
	}
	patches := a.patches(id)
	for _, ch := range a.each {
		if ch.index.end > 0 {
			patches = append(patches, patch{ch.index, strconv.AppendInt(nil, int64(index), 10)})
		}
	}
	return apply(dst, data, sorted(patches))
}

// UsageSum adds up the usage chunks of a batch's streams. The zero value is ready.
type UsageSum struct {
	first  []byte
	usages [][]byte
}

// Add takes data, keeps a copy, and reports whether it was a usage chunk, which must then not go to the
// client.
func (u *UsageSum) Add(data []byte) bool {
	if !UsageOnly(data) {
		return false
	}
	at, ok := member(data, "usage", '{')
	if !ok {
		return false
	}
	if u.first == nil {
		u.first = slices.Clone(data)
	}
	u.usages = append(u.usages, slices.Clone(at.of(data)))
	return true
}

// Append appends the data of the one usage chunk for the client, nothing when none was added.
func (u *UsageSum) Append(dst []byte, id string) []byte {
	if u.first == nil {
		return dst
	}
	a, err := parts(u.first)
	if err != nil {
		return dst
	}
	return apply(dst, u.first, sorted(append(a.patches(id), patch{a.usage, sumUsage(u.usages)})))
}

// sumUsage returns the first usage object with every number in it summed over all.
func sumUsage(usages [][]byte) []byte {
	sums := map[string]int{}
	for _, usage := range usages {
		eachNumber(usage, 0, "", func(path string, _ span, n int) { sums[path] += n })
	}
	var patches []patch
	eachNumber(usages[0], 0, "", func(path string, at span, _ int) {
		patches = append(patches, patch{at, strconv.AppendInt(nil, int64(sums[path]), 10)})
	})
	return apply(nil, usages[0], patches)
}

// eachNumber walks the integers in an object and the objects in it.
func eachNumber(object []byte, base int, path string, visit func(path string, at span, n int)) {
	s := scanner(object)
	if s.Peek() != '{' {
		return
	}
	for key := range s.Members() {
		c := s.Peek()
		at := span{start: s.Pos}
		s.Skip()
		at.end = s.Pos
		if s.Err() != nil {
			return
		}
		here, value := path+"."+string(rawjson.Name(key)), at.of(object)
		if c == '{' {
			eachNumber(value, base+at.start, here, visit)
		} else if n, err := strconv.Atoi(string(value)); err == nil {
			visit(here, span{base + at.start, base + at.end}, n)
		}
	}
}

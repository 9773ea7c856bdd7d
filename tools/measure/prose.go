package main

import (
	"regexp"
	"strings"
	"unicode"
)

// longSentence is the largest number of words that a sentence should have.
const longSentence = 40

// prose counts constructions that make English hard to read.
type prose struct {
	words int
	long  int // sentences of more than longSentence words
	vague int // "of" and a pronoun in place of a noun: see vaguePhrase
	who   int // pronouns for persons, which nearly always mean a machine here: see whoWord
}

var (
	vaguePhrase = regexp.MustCompile(`(?i)\bof (these|those|it|them|that)\b`)
	whoWord     = regexp.MustCompile(`(?i)\bwho(m)?\b`)
	codeSpan    = regexp.MustCompile("`[^`\n]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)\n]*\)`)
	sentenceEnd = regexp.MustCompile(`[.!?][)"'*_]*(\s+|$)`)
	listItem    = regexp.MustCompile(`(?m)^\s*([*+-]|\d+\.)\s`)
	fencedCode  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	indented    = regexp.MustCompile(`(?m)^(    |\t).*$`)
)

// add counts one text that needs no further splitting: a paragraph, an item or a cell.
func (p *prose) add(text string) {
	text = linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(text, "code"), "]")
	p.vague += len(vaguePhrase.FindAllString(text, -1))
	p.who += len(whoWord.FindAllString(text, -1))
	for _, sentence := range sentenceEnd.Split(text, -1) {
		n := wordsIn(sentence)
		p.words += n
		p.long += btoi(n > longSentence)
	}
}

// wordsIn counts the fields with a letter or a digit.
func wordsIn(text string) int {
	n := 0
	for field := range strings.FieldsSeq(text) {
		n += btoi(strings.ContainsFunc(field, inWords))
	}
	return n
}

func inWords(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// comment counts a group of Go comments, without indented code.
func (p *prose) comment(text string) {
	for part := range strings.SplitSeq(indented.ReplaceAllString(text, ""), "\n\n") {
		p.parts(part)
	}
}

// document counts a page of Markdown, without its code. Each cell of a table is a text of its own.
func (p *prose) document(text string) {
	text = fencedCode.ReplaceAllString(text, "")
	for part := range strings.SplitSeq(indented.ReplaceAllString(text, ""), "\n\n") {
		if strings.HasPrefix(strings.TrimSpace(part), "|") {
			for cell := range strings.FieldsFuncSeq(codeSpan.ReplaceAllString(part, "code"), isCellEnd) {
				p.add(cell)
			}
			continue
		}
		p.parts(part)
	}
}

func isCellEnd(r rune) bool { return r == '|' || r == '\n' }

// parts counts a paragraph, or each item of a list.
func (p *prose) parts(text string) {
	for _, item := range listItem.Split(text, -1) {
		p.add(item)
	}
}

package enginesim

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// The vocabulary, by id:
//
//	0 <s>   1 </s>   2 <user>   3 <assistant>   4 <system>   5 <tool>   6,7 unused
//	8..263  one byte each
//	264..   words with a space before them, the commonest first
const (
	tokBOS = iota
	tokEOS
	tokUser
	tokAssistant
	tokSystem
	tokTool
	_
	_
	firstByte
	firstWord = firstByte + 256
)

// commonWords are the first words of the list, so that prompts in plain English have few tokens.
const commonWords = "the of and a to in is you that it he was for on are as with his they I at be this " +
	"have from or one had by word but not what all were " +
	"we when your can said there use an each which she do how their if will up other about out many then them " +
	"these so some her would make like him into " +
	"time has look two more write go see number no way could people my than first water been call who oil its " +
	"now find long down day did get come made may " +
	"part over new sound take only little work know place year live me back give most very after thing our " +
	"just name good sentence man think say great where " +
	"help through much before line right too mean old any same tell boy follow came want show also around " +
	"form three small set put end does another well large " +
	"must big even such because turn here why ask went men read need land different home us move try kind " +
	"hand picture again change off play spell air away " +
	"animal house point page letter mother answer found study still learn should world The You block blocks " +
	"cache token tokens prompt prefill decode router " +
	"lease engine model system user assistant please explain write summarize question code data value key " +
	"list hello briefly"

// vocabulary converts text to token ids and back. It is immutable; detokenize(tokenize(x)) == x for every x.
type vocabulary struct {
	text  []string       // by id; special tokens are ""
	words map[string]int // word without its space -> id
	size  int
}

// newVocabulary creates a vocabulary of size ids, or more if the bytes need more.
func newVocabulary(size int) *vocabulary { return newVocabularyOf("", size) }

// newVocabularyOf is newVocabulary for a tokenizer with a name. Names of different lengths give the common
// words different ids.
func newVocabularyOf(name string, size int) *vocabulary {
	size = max(size, firstWord+1)
	v := &vocabulary{text: make([]string, firstByte, size), words: make(map[string]int, size), size: size}
	for b := range 256 {
		v.text = append(v.text, string([]byte{byte(b)}))
	}
	common := strings.Fields(commonWords)
	for i := range common {
		v.addWord(common[(i+len(name))%len(common)])
	}
	for i := 0; len(v.text) < size; i++ {
		v.addWord(madeUp(i))
	}
	v.text = v.text[:size]
	return v
}

func (v *vocabulary) addWord(w string) {
	if _, ok := v.words[w]; ok || len(v.text) >= v.size {
		return
	}
	v.words[w] = len(v.text)
	v.text = append(v.text, " "+w)
}

// madeUp returns the i-th artificial word: at least two syllables of a consonant and a vowel.
func madeUp(i int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	const syllables = len(consonants) * len(vowels)
	var w []byte
	for n := i + syllables; n > 0; n /= syllables {
		s := n % syllables
		w = append(w, consonants[s/len(vowels)], vowels[s%len(vowels)])
	}
	slices.Reverse(w)
	for j := 0; j+1 < len(w); j += 2 {
		w[j], w[j+1] = w[j+1], w[j]
	}
	return string(w)
}

// tokenize appends the ids of text to dst. A known word with its space is one token; all other text is bytes.
func (v *vocabulary) tokenize(dst []uint32, text string) []uint32 {
	for i := 0; i < len(text); {
		if text[i] == ' ' {
			end := wordEnd(text, i+1)
			if id, ok := v.words[text[i+1:end]]; ok {
				dst = append(dst, uint32(id))
				i = end
				continue
			}
		}
		dst = append(dst, firstByte+uint32(text[i]))
		i++
	}
	return dst
}

func wordEnd(text string, i int) int {
	for i < len(text) && isLetter(text[i]) {
		i++
	}
	return i
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// detokenize is the inverse of tokenize. Special tokens are dropped, and bytes that are not UTF-8 become
// U+FFFD.
func (v *vocabulary) detokenize(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		if int(id) < len(v.text) {
			b.WriteString(v.text[id])
		}
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// piece returns the text of a single token for logprobs. A byte above ASCII becomes U+FFFD.
func (v *vocabulary) piece(id uint32) string {
	if int(id) >= len(v.text) {
		return ""
	}
	if s := v.text[id]; len(s) != 1 || s[0] < utf8.RuneSelf {
		return s
	}
	return "\ufffd"
}

// chatMessage is one turn for the template.
type chatMessage struct{ role, content string }

// chat appends a templated conversation: the start token, each turn behind its role's marker, and the marker
// of the answer.
func (v *vocabulary) chat(dst []uint32, turns []chatMessage) []uint32 {
	dst = append(dst, tokBOS)
	for _, t := range turns {
		dst = append(dst, roleMarker(t.role))
		dst = v.tokenize(dst, t.content)
	}
	return append(dst, tokAssistant)
}

func roleMarker(role string) uint32 {
	switch role {
	case "system", "developer":
		return tokSystem
	case "assistant":
		return tokAssistant
	case "tool", "function":
		return tokTool
	}
	return tokUser
}

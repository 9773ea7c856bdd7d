package connector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// short returns the params of an engine that leaves this many tokens of a prompt to the decode engine.
func short(engine string, prompt, withheld int) string {
	tokens := prompt - withheld
	var blocks strings.Builder
	blocks.WriteString("1")
	for i := range (tokens+31)/32 - 1 {
		blocks.WriteString(fmt.Sprint(",", i+2))
	}
	change := []string{
		"[[1,2,3,4]]", "[[" + blocks.String() + "]]", ":100", fmt.Sprint(":", tokens), "6df2bc3d", engine,
	}
	return strings.NewReplacer(change...).Replace(realParams)
}

// An engine that speculates with several MTP modules leaves its number of speculative tokens minus one to
// the decode engine. If that saves a block, it returns fewer blocks.
func TestPrefillLeavesTokensToDecode(t *testing.T) {
	for withheld := range 40 {
		for _, prompt := range []int{41, 96, 97, 100, 1000} {
			err := edited(t, NIXL{Withheld: new(Withheld)}, short("e", prompt, withheld), prompt, inTime)
			if want := withheld <= mostWithheld; (err == nil) != want {
				t.Errorf("%d of %d tokens withheld: %v, want accepted: %v", withheld, prompt, err, want)
			}
		}
	}
	for prompt := 2; prompt <= mostWithheld; prompt++ { // all tokens may be prefilled, or only one
		for withheld := range prompt {
			err := edited(t, NIXL{Withheld: new(Withheld)}, short("e", prompt, withheld), prompt, inTime)
			if err != nil {
				t.Errorf("%d of %d tokens withheld: %v", withheld, prompt, err)
			}
		}
	}
}

// The number of withheld tokens does not change during an engine's life. Another number means another
// prompt's params, and is refused once.
func TestWithheldIsConsistent(t *testing.T) {
	n := NIXL{Withheld: new(Withheld)}
	for i, c := range []struct {
		engine           string
		prompt, withheld int
		ok               bool
	}{
		{"a", 3, 0, true}, // too short to show the number
		{"a", 100, 3, true},
		{"b", 100, 0, true},
		{"a", 1000, 3, true},
		{"a", 3, 0, true},
		{"a", 100, 2, false},
		{"a", 100, 2, true}, // restarted with the same id
		{"a", 100, 3, false},
		{"b", 64, 0, true},
		{"b", 64, 1, false},
	} {
		err := edited(t, n, short(c.engine, c.prompt, c.withheld), c.prompt, inTime)
		bad, _ := errors.AsType[*InvalidParams](err)
		if (err == nil) != c.ok || bad != nil && bad.Field != "remote_num_tokens" {
			t.Errorf("step %d: %+v: %v", i, c, err)
		}
	}
	if err := edited(t, n, short("a", 100, 9), 100, Use{Now: start, GiveBack: true}); err != nil {
		t.Errorf("give back: %v", err)
	}
}

func TestWithheldIsBounded(t *testing.T) {
	w := new(Withheld)
	for i := range 3 * maxEngines {
		if err := w.agree(fmt.Sprint(i), 100, 1); err != nil || len(w.by) > maxEngines {
			t.Fatalf("%v, %d engines remembered", err, len(w.by))
		}
	}
}

package main

import (
	"strings"
	"testing"
	"time"
)

// at returns a record of a prompt that arrived at from and had its first token at first, in milliseconds.
// The record has the numbers of predicted and found tokens.
func at(id, engine, tokenizer string, from, first float64, predicted, found int) record {
	r := record{
		ID: id, Mode: "local", Decode: engine, Tokenizer: tokenizer, Outcome: "ok", Captured: predicted,
		Delivered: found, Time: time.Unix(1000, 0).Add(time.Duration(from * float64(time.Millisecond))),
	}
	r.Phases.First = first - from
	return r
}

// A prompt may find more cached tokens than predicted, if a prompt with unknown tokens ran next to it on
// the same engine. That is not a wrong prediction. Every other difference is one.
func TestNobodyForeseesWhatUnknownPromptsLeave(t *testing.T) {
	for name, c := range map[string]struct {
		beside     record
		unforeseen int
	}{
		"under way":              {at("o", "d1", "estimate", -10, 5, -1, 0), 1},
		"came later":             {at("o", "d1", "estimate", 1, 46, -1, 0), 1},
		"was through before":     {at("o", "d1", "estimate", -50, -10, -1, 0), 0},
		"came after it was done": {at("o", "d1", "estimate", 60, 90, -1, 0), 0},
		"on another engine":      {at("o", "d2", "estimate", -10, 5, -1, 0), 0},
		"its tokens are known":   {at("o", "d1", "render", -10, 5, 0, 0), 0},
	} {
		few := judge(nil, []record{at("r", "d1", "render", 0, 46, 0, 192), c.beside})
		if few.unforeseen != c.unforeseen || len(few.missed) != 1-c.unforeseen {
			t.Errorf("%s: %d unforeseen, %d missed", name, few.unforeseen, len(few.missed))
		}
		more := judge(nil, []record{at("r", "d1", "render", 0, 46, 192, 0), c.beside})
		if more.unforeseen != 0 || len(more.missed) != 1 {
			t.Errorf("%s: fewer tokens than predicted were accepted", name)
		}
	}
}

// The prompts of a batch may evict each other's blocks. Other prompts may not.
func TestSiblingsDriveBlocksOut(t *testing.T) {
	for name, c := range map[string]struct {
		beside     record
		unforeseen int
	}{
		"a sibling":            {at("r-0", "d1", "render", 1, 40, 0, 0), 1},
		"a sibling elsewhere":  {at("r-0", "d2", "render", 1, 40, 0, 0), 0},
		"a sibling before":     {at("r-0", "d1", "render", -50, -10, 0, 0), 0},
		"a prompt of its own":  {at("o", "d1", "render", 1, 40, 0, 0), 0},
		"one of another batch": {at("o-0", "d1", "render", 1, 40, 0, 0), 0},
	} {
		v := judge(nil, []record{at("r-1", "d1", "render", 0, 46, 192, 0), c.beside})
		if v.unforeseen != c.unforeseen || len(v.missed) != 1-c.unforeseen {
			t.Errorf("%s: %d unforeseen, %d missed", name, v.unforeseen, len(v.missed))
		}
		more := judge(nil, []record{at("r-1", "d1", "render", 0, 46, 0, 192), c.beside})
		if more.unforeseen != 0 || len(more.missed) != 1 {
			t.Errorf("%s: more tokens than predicted were accepted", name)
		}
	}
}

// A phase fails if many prompts found more tokens than predicted, even if unknown prompts ran next to
// them.
func TestManyUnforeseenAreNoChance(t *testing.T) {
	records := []record{at("o", "d1", "estimate", 0, 1000, -1, 0)}
	for i := range 20 {
		found := 0
		if i < 3 {
			found = 192
		}
		records = append(records, at(string(rune('a'+i)), "d1", "render", 100, 200, 0, found))
	}
	v := judge(nil, records)
	v.modes["split"] = 1
	if err := v.verdict(0.95); err == nil || !strings.Contains(err.Error(), "an eighth") {
		t.Errorf("3 of 20: %v", err)
	}
	records[1].Delivered = 0
	v = judge(nil, records)
	v.modes["split"] = 1
	if err := v.verdict(0.95); err != nil {
		t.Errorf("2 of 20: %v", err)
	}
}

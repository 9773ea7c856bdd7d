package main

import "testing"

// A named number counts once. Enumerations, texts and values derived from other names do not count.
func TestConstants(t *testing.T) {
	dir := checkout(t, map[string]string{
		"scoring/a.go": `package scoring

import "time"

const (
	patience, share = 50, 0.5
	wait            = 2 * time.Second
	second          = time.Second
	one             = 1
	typed           = float64(3)
	longer          = 3 * wait
)

const (
	last  = patience - 1
	alias = time2.Usual
	name  = "x"
	yes   = true
)

const (
	red = iota + 1
	green
)

func f() int {
	const inner = 7
	return inner
}
`,
		"internal/lab/b.go": "package lab\n\nconst most = 3\n",
		"tools/c/c.go":      "package c\n\nconst most = 3\n",
		"decode/turns/d.go": "package turns\n\nconst most = 3\n",
	})
	got := mustMeasure(t, dir)
	if n := got["scoring"].api.constants; n != 8 {
		t.Errorf("%d named numbers, want 8", n)
	}
	if s := got.sizeOf(decides); s.constants != 9 || s.lines != got["scoring"].codeLines+2 {
		t.Errorf("the decision has %+v", s)
	}
	if s := got.sizeOf(ships); s.constants != 9 {
		t.Errorf("the product has %+v", s)
	}
}

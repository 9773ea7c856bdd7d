package grid

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// The plays of rivals are stored and not played again. Tandem's plays are not stored, because Tandem is
// what changes. Stored plays of other simulated engines are rejected.
func TestPlaysAreKept(t *testing.T) {
	var file bytes.Buffer
	ctx := t.Context()
	g := &Ground{Kind: "extract-bursts", Shape: "1P1D", Cache: 1, Step: 8192}
	playerOf := func(plays *Plays) (*Player, *int) {
		p, err := NewPlayer(g, Options{Requests: 30, Plays: plays})
		if err != nil {
			t.Fatal(err)
		}
		count := new(int)
		p.simulate = func(_ context.Context, at *replay.Play, form string) (*Played, error) {
			*count++
			return &Played{Figures: Figures{Policy: form, Usual: 1 / at.Scale}, Windows: windowsOf(1, 2)}, nil
		}
		return p, count
	}
	first := NewPlays()
	if err := first.Keep(ctx, &file); err != nil {
		t.Fatal(err)
	}
	first.Append(&file)
	p, count := playerOf(first)
	var want []*Played
	forms := []string{"lmetric", ours, "lmetric", "lmetric+local"}
	for _, form := range forms {
		x, err := p.play(ctx, "1P1D", form, 1.0/3, 1)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, x)
	}
	if *count != 3 {
		t.Errorf("%d plays of three", *count)
	}
	written := file.String()
	second := NewPlays()
	if same, err := second.ReadPlays(ctx, strings.NewReader(written+`{"kind":"x"`)); !same || err != nil {
		t.Fatalf("%v, %v", same, err)
	}
	p, count = playerOf(second)
	for i, form := range forms {
		x, err := p.play(ctx, "1P1D", form, 1.0/3, 1)
		if err != nil || !reflect.DeepEqual(x, want[i]) {
			t.Errorf("%s: %+v, want %+v, %v", form, x, want[i], err)
		}
	}
	if *count != 1 {
		t.Errorf("%d plays, want only the one that was not stored", *count)
	}
	if _, err := p.play(ctx, "1P1D", "lmetric", 1.0/3, 2); err != nil || *count != 2 {
		t.Errorf("another seed: %d plays, %v", *count, err)
	}
	other := strings.Replace(written, "steps", "strides", 1)
	if same, err := NewPlays().ReadPlays(ctx, strings.NewReader(other)); same || err != nil {
		t.Errorf("plays of other engines were accepted: %v", err)
	}
	if same, err := NewPlays().ReadPlays(ctx, strings.NewReader("")); same || err != nil {
		t.Errorf("an empty file: %v, %v", same, err)
	}
}

// The stored plays of rivals that ship with Tandem belong to the present engines. After a change of the
// engines they must be played again (docs/replay.md, The grid), or removed.
func TestRivalsPlaysThatShip(t *testing.T) {
	f, err := os.Open("../../../../docs/data/grid-plays.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	plays := NewPlays()
	same, err := plays.ReadPlays(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !same {
		t.Fatal("the plays that ship belong to other simulated engines")
	}
	if n := len(plays.made); n < 2500 {
		t.Errorf("%d plays, want the plays of all cells", n)
	}
}

// A fleet with other links is a different fleet: it is played with its links, and stored plays with the
// usual links are not used for it.
func TestSlowLinksAreAnotherFleet(t *testing.T) {
	g := &Ground{Kind: "extract-bursts", Shape: "1P1D", Cache: 1, Step: 8192}
	plays := NewPlays()
	var links []float64
	for _, link := range []float64{0, replay.UsualLink, 8} {
		p, err := NewPlayer(g, Options{Requests: 30, Plays: plays, Link: link})
		if err != nil {
			t.Fatal(err)
		}
		p.simulate = func(_ context.Context, at *replay.Play, _ string) (*Played, error) {
			links = append(links, at.Link)
			return &Played{}, nil
		}
		if _, err := p.play(t.Context(), "1P1D", "lmetric", 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	if want := []float64{0, 8}; !slices.Equal(links, want) {
		t.Errorf("played with links of %v GB/s, want %v: the usual ones once", links, want)
	}
}

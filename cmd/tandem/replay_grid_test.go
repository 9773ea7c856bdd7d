package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay/grid"
)

// Fleets that were already played with wrong facts are not played again, and can be selected by name.
// Results for other hosts are not shown next to them.
func TestReplayGridFacts(t *testing.T) {
	fleets := grid.Fleets()
	file := filepath.Join(t.TempDir(), "grid.jsonl")
	told := grid.Told{Ours: grid.Figures{Usual: 0.9, TTFT: 1}, Knowing: grid.Figures{Usual: 0.95, TTFT: 2}}
	lines := []grid.Facts{{
		Fleet: fleets[0].Name(), Load: 7, Model: "links=shared host=measured", Told: []grid.Told{told},
	}}
	if err := replaceFile(strings.TrimSuffix(file, ".jsonl")+"-facts.jsonl",
		func(w io.Writer) error { return grid.Write(w, lines) }); err != nil {
		t.Fatal(err)
	}
	args := []string{"replay", "grid", "--tables", "facts", "--only", fleets[0].Name(), "--out", file}
	var out, log bytes.Buffer
	if code := run(t.Context(), args, &out, &log); code != 0 || log.Len() > 0 ||
		!strings.Contains(out.String(), fleets[0].Name()+", 7 | **90.0, 1.00** |") {
		t.Errorf("code %d, %s%s", code, out.String(), log.String())
	}
	if code := run(t.Context(), append(args, "--host", "profile"), &out, &log); code == 0 ||
		!strings.Contains(log.String(), "another model of the fleet") {
		t.Errorf("another host: code %d, %s", code, log.String())
	}
	out.Reset()
	if code := run(t.Context(), append(args, "--list"), &out, &log); code != 0 ||
		out.String() != fleets[0].Name()+" facts\n" {
		t.Errorf("listed: code %d, %s", code, out.String())
	}
}

// A cell that was already played is not played again, even if the end of the file was truncated. A cell
// can be selected by its name, and a cell that cannot be played is reported.
func TestReplayGrid(t *testing.T) {
	var names, log bytes.Buffer
	if code := run(t.Context(), []string{"replay", "grid", "--list"}, &names, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	var cells []string
	for name := range strings.Lines(names.String()) {
		if strings.HasPrefix(name, "azure-28/") && len(cells) < 2 {
			cells = append(cells, strings.Fields(name)[0])
		}
	}
	folder := t.TempDir()
	file, page := filepath.Join(folder, "grid.jsonl"), filepath.Join(folder, "grid.html")
	picture := filepath.Join(folder, "grid.svg")
	args := []string{
		"replay", "grid", "--only", cells[0], "--traces", folder, "--out", file, "--html", page, "--svg", picture,
		"--seeds", "1", "--tables", "cells",
	}
	var out bytes.Buffer
	if code := run(t.Context(), args, &out, &log); code == 0 ||
		!strings.Contains(log.String(), "not played: kind") {
		t.Errorf("without the file of its trace: code %d, %s", code, log.String())
	}
	var played []grid.Line
	for _, cell := range cells {
		l := grid.Line{Cell: cell, Share: 0.7, Blind: true, Model: "links=shared host=measured"}
		l.Capacity = grid.Capacities{Ours: 2, Rival: 1, Unsplit: 1}
		played = append(played, l)
	}
	var lines bytes.Buffer
	if err := grid.Write(&lines, played); err != nil {
		t.Fatal(err)
	}
	lines.WriteString(`{"cell":`)
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	if code := run(t.Context(), args, &out, &log); code != 0 || !strings.Contains(out.String(), cells[1]) ||
		log.Len() > 0 {
		t.Errorf("played before: code %d, %s%s", code, out.String(), log.String())
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("2 of 2 cells")) {
		t.Errorf("the page: %v, %d bytes", err, len(html))
	}
	if svg, err := os.ReadFile(picture); err != nil || xml.Unmarshal(svg, new(struct{})) != nil ||
		bytes.Count(svg, []byte("<circle")) != 2*(2+3) {
		t.Errorf("the picture does not have two dots for each cell and each mark: %v\n%s", err, svg)
	}
	for _, other := range [][2]string{{"--links", "queue"}, {"--link", "8"}} {
		log.Reset()
		if code := run(t.Context(), append(args, other[:]...), &out, &log); code == 0 ||
			!strings.Contains(log.String(), "another model of the fleet") {
			t.Errorf("cells of two models in a file, %v: code %d, %s", other, code, log.String())
		}
	}
	log.Reset()
	if code := run(t.Context(), append(args, "--link", "-1"), &out, &log); code == 0 ||
		!strings.Contains(log.String(), "--link is -1: choose a number above 0") {
		t.Errorf("an invalid link: code %d, %s", code, log.String())
	}
}

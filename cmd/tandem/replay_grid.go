package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/grid"
)

// gridRun is a grid that is being played.
type gridRun struct {
	options grid.Options
	only    string
	file    string
	draw    drawings
	workers int
	rounds  int
	seeds   int
	tables  string

	mu     sync.Mutex // guards the following and the files
	played            // by now
	failed int
}

// played has the results for each table.
type played struct {
	lines  []grid.Line
	shaped []grid.Shaped
	facts  []grid.Facts
}

// tables are the names of the tables that can be made.
var tables = []string{"cells", "shapes", "facts", "oracles"}

// drawings are the files that are drawn, "" none.
type drawings struct{ page, chart string }

// gridCommand plays the decision beside its fair rivals over a drawn grid.
//
// Long: most rows are flags.
func gridCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "grid", Short: "compare the decision with tuned policies of other routers, on a random grid",
		Args: noArgs,
	}
	var r gridRun
	fs := c.Flags()
	fs.IntVar(&r.rounds, "rounds", 2, "how often each kind of traffic is drawn; a round is 56 cells")
	fs.Uint64Var(&r.options.Seed, "seed", 1, "seed of the grid and of all random numbers")
	fs.IntVar(&r.seeds, "seeds", 3, "plays of each cell with different seeds; "+
		"cells in --out with fewer plays get the missing ones")
	fs.StringVar(&r.tables, "tables", "cells,shapes,facts", "tables to make: "+
		"cells (all policies in the same shape of fleet), "+
		"shapes (each policy in its best shape of the same number of replicas, at both goals), "+
		"facts (routers with wrong facts, on fleets of their own), "+
		"oracles (routers that know everything, in the played cells)")
	r.options.Links, r.options.Host = "shared", "measured" // claims rest on the setting nearest to real fleets
	fleetFlags(c, &r.options.Links, &r.options.Host)
	linkFlag(c, &r.options.Link)
	fs.IntVar(&r.options.Requests, "requests", 1200, "approximate number of requests of a play")
	fs.DurationVar(&r.options.Shortest, "least", time.Minute, "shortest virtual `time` of a play")
	tracesFlag(fs, &r.options.Traces)
	fs.StringVar(&r.only, "only", "",
		"`names`, or beginnings of names, of the cells and fleets to play; all if empty")
	fs.StringVar(&r.file, "out", filepath.Join("build", "grid.jsonl"),
		"`file` with a line per cell; files beside it end with -shapes (best shapes), -facts (wrong facts) "+
			"and -plays (plays of rivals); finished plays are not repeated")
	fs.StringVar(&r.draw.page, "html", "", "also write a page to this `file`")
	fs.StringVar(&r.draw.chart, "svg", "", "also draw the cells as a picture in this `file`")
	fs.IntVar(&r.workers, "workers", 2, "number of cells played at the same time")
	list := fs.Bool("list", false, "print the names and stop")
	quiet := fs.Bool("quiet", false, "no progress")
	lists(c, "tables", tables...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !*quiet {
			r.options.Progress = since(c.ErrOrStderr())
		}
		return r.run(c.Context(), *list, c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

// run plays the missing cells and prints all results; with list it prints only the names of the wanted
// cells.
func (r *gridRun) run(ctx context.Context, list bool, stdout, stderr io.Writer) error {
	if err := aboveZero("link", r.options.Link); err != nil {
		return err
	}
	for table := range strings.SplitSeq(r.tables, ",") {
		if !slices.Contains(tables, table) {
			return wrongValue("--tables: there is no table %q; there are %s", table, strings.Join(tables, ", "))
		}
	}
	grounds := r.wanted()
	if list {
		return r.list(stdout, grounds)
	}
	err := r.all(ctx, grounds, stderr)
	if r.draw.page != "" {
		err = errors.Join(err, writeFile(r.draw.page, func(w io.Writer) error {
			return grid.Page(w, r.lines, 2*len(grounds), r.shaped)
		}))
	}
	if r.draw.chart != "" {
		err = errors.Join(err, writeFile(r.draw.chart, func(w io.Writer) error { return grid.Chart(w, r.lines) }))
	}
	err = errors.Join(err, grid.Print(stdout, r.lines), grid.PrintTable(stdout, r.lines),
		grid.PrintKnownTable(stdout, r.lines))
	if len(r.shaped) > 0 {
		err = errors.Join(err, grid.PrintShaped(stdout, r.shaped), grid.PrintShapedTables(stdout, r.shaped))
	}
	if len(r.facts) > 0 {
		err = errors.Join(err, grid.PrintFacts(stdout, r.facts))
	}
	return err
}

// wanted draws the grid and takes the wanted cells.
func (r *gridRun) wanted() []grid.Ground {
	wanted, _ := replay.Named(grid.Draw(r.options.Seed, r.rounds), named(r.only), (*grid.Ground).Names)
	return wanted
}

// wants reports whether a table is to be played.
func (r *gridRun) wants(table string) bool {
	return slices.Contains(strings.Split(r.tables, ","), table)
}

// list writes the names of the cells, and the names of the fleets with wrong facts.
func (r *gridRun) list(w io.Writer, grounds []grid.Ground) error {
	if r.tables != "facts" {
		if err := listCells(w, grounds); err != nil {
			return err
		}
	}
	if !r.wants("facts") {
		return nil
	}
	fleets := r.wantedFleets()
	for i := range fleets {
		if _, err := fmt.Fprintf(w, "%s facts\n", fleets[i].Name()); err != nil {
			return err
		}
	}
	return nil
}

func listCells(w io.Writer, grounds []grid.Ground) error {
	for i := range grounds {
		g := &grounds[i]
		mark := ""
		if g.Blind {
			mark = " blind"
		}
		for _, share := range g.Shares {
			if _, err := fmt.Fprintf(w, "%s%s\n", g.Cell(share), mark); err != nil {
				return err
			}
		}
	}
	return nil
}

// beside names a file of the same grid.
func (r *gridRun) beside(what string) string {
	ext := filepath.Ext(r.file)
	return strings.TrimSuffix(r.file, ext) + "-" + what + ext
}

// all plays what is missing. It begins with every cell and one seed, which shows most in the least time. Then
// it plays the best shapes, the oracles, and the other seeds.
func (r *gridRun) all(ctx context.Context, grounds []grid.Ground, log io.Writer) (err error) {
	if err := r.read(); err != nil {
		return err
	}
	var passes [][]job
	if r.wants("cells") {
		passes = append(passes, r.missingCells(grounds))
	}
	if r.wants("shapes") {
		passes = append(passes, r.missingShapes(grounds))
	}
	if r.wants("facts") {
		passes = append(passes, r.missingFacts())
	}
	if len(slices.Concat(passes...))+len(r.missingOracles(grounds))+len(r.missingSeeds(grounds)) == 0 {
		return nil
	}
	closePlays, err := r.openPlays(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlays()) }()
	for _, jobs := range passes {
		if err := r.play(ctx, jobs, log); err != nil {
			return err
		}
	}
	for _, missing := range []func([]grid.Ground) []job{r.missingOracles, r.missingSeeds} {
		if err := r.play(ctx, missing(grounds), log); err != nil {
			return err
		}
	}
	if r.failed > 0 {
		return fmt.Errorf("%d could not be played", r.failed)
	}
	return nil
}

// read loads the results of earlier plays.
func (r *gridRun) read() (err error) {
	if r.lines, err = readLines[grid.Line](r.file); err != nil {
		return err
	}
	if r.shaped, err = readLines[grid.Shaped](r.beside("shapes")); err != nil {
		return err
	}
	if r.facts, err = readLines[grid.Facts](r.beside("facts")); err != nil {
		return err
	}
	return r.sameModel()
}

// sameModel checks that the earlier plays are of the requested fleet.
func (r *gridRun) sameModel() error {
	other := func(model string) bool { return model != r.options.Model() }
	if slices.ContainsFunc(r.lines, func(l grid.Line) bool { return other(l.Model) }) ||
		slices.ContainsFunc(r.shaped, func(s grid.Shaped) bool { return other(s.Model) }) ||
		slices.ContainsFunc(r.facts, func(f grid.Facts) bool { return f.Model != r.options.WithoutLink() }) {
		return fmt.Errorf("%s, or what is beside it, was played with another model of the fleet: "+
			"--out names a file", r.file)
	}
	return nil
}

func readLines[T grid.Line | grid.Shaped | grid.Facts](name string) ([]T, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := grid.Read[T](f)
	return lines, errors.Join(err, f.Close())
}

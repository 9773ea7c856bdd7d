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

	"golang.org/x/sync/errgroup"

	"tandem/internal/replay/grid"
)

// gridRun is a grid that is being played.
type gridRun struct {
	options grid.Options
	only    string
	file    string
	page    string
	workers int
	rounds  int

	mu     sync.Mutex // guards the following and the file
	lines  []grid.Line
	failed int // grounds
}

// runGrid plays the decision beside its fair rivals over a drawn grid.
func runGrid(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var r gridRun
	fs := newFlags("replay grid", "[flags]", stderr)
	fs.IntVar(&r.rounds, "rounds", 2, "how often each kind of traffic is drawn; a round is 56 cells")
	fs.Uint64Var(&r.options.Seed, "seed", 1, "of the grid and of everything drawn")
	fs.IntVar(&r.options.Requests, "requests", 1200, "that a play has, about")
	fs.DurationVar(&r.options.Shortest, "least", time.Minute, "virtual `time` that a play lasts at least")
	fs.StringVar(&r.options.Traces, "traces", shippedTraces(),
		"`folder` of the traces; most recorded kinds want some that do not ship with Tandem")
	fs.StringVar(&r.only, "only", "",
		"`names`, or beginnings of names, of the cells that are played; all if empty")
	fs.StringVar(&r.file, "out", filepath.Join("build", "grid.jsonl"),
		"`file` for a line of each cell; cells that it has already are not played again")
	fs.StringVar(&r.page, "html", "", "draw a page, too: this `file`")
	fs.IntVar(&r.workers, "workers", 2, "cells that are played at a time")
	list := fs.Bool("list", false, "print the names and stop")
	quiet := fs.Bool("quiet", false, "no progress")
	if err := parse(fs, args); err != nil {
		return err
	}
	grounds := r.wanted()
	if *list {
		return listCells(stdout, grounds)
	}
	if !*quiet {
		r.options.Progress = since(stderr, time.Now())
	}
	if err := r.resume(); err != nil {
		return err
	}
	err := r.play(ctx, grounds, stderr)
	if r.page != "" {
		err = errors.Join(err, writeFile(r.page, func(w io.Writer) error {
			return grid.Page(w, r.lines, 2*len(grounds))
		}))
	}
	return errors.Join(err, grid.Print(stdout, r.lines))
}

// wanted draws the grid and takes what was asked for.
func (r *gridRun) wanted() []grid.Ground {
	var only []string
	if r.only != "" {
		only = strings.Split(r.only, ",")
	}
	return slices.DeleteFunc(grid.Draw(r.options.Seed, r.rounds),
		func(g grid.Ground) bool { return !g.Wanted(only) })
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

// resume reads what was played before. A line that was cut off is dropped.
func (r *gridRun) resume() error {
	f, err := os.Open(r.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.lines, err = grid.Read(f)
	return errors.Join(err, f.Close())
}

// play plays what is missing. A cell that cannot be played is told, and the others go on.
func (r *gridRun) play(ctx context.Context, grounds []grid.Ground, log io.Writer) error {
	group := errgroup.Group{}
	group.SetLimit(max(1, r.workers))
	for i := range grounds {
		g := &grounds[i]
		if r.has(g) {
			continue
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			lines, err := grid.Run(ctx, g, r.options)
			if err != nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.failed++
				fmt.Fprintln(log, "not played:", err)
				return ctx.Err()
			}
			return r.add(lines)
		})
	}
	err := group.Wait()
	if err == nil && r.failed > 0 {
		err = fmt.Errorf("%d of %d could not be played", r.failed, len(grounds))
	}
	return err
}

func (r *gridRun) has(g *grid.Ground) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, share := range g.Shares {
		if !slices.ContainsFunc(r.lines, func(l grid.Line) bool { return l.Cell == g.Cell(share) }) {
			return false
		}
	}
	return true
}

// add keeps the lines of a ground. The file is written anew: it is small, and never half of it.
func (r *gridRun) add(lines []grid.Line) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, lines...)
	partial := r.file + ".new"
	err := writeFile(partial, func(w io.Writer) error {
		for i := range r.lines {
			if err := r.lines[i].Write(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return os.Rename(partial, r.file)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/grid"
)

// job makes plays of a ground, and adds them to the results.
type job struct {
	ground *grid.Ground
	link   float64 // GB/s between engines, 0 for the value of the flag
	do     func(context.Context, *grid.Player) error
}

// missingCells are the grounds with a cell that has not been played.
func (r *gridRun) missingCells(grounds []grid.Ground) []job {
	var jobs []job
	for i := range grounds {
		g := &grounds[i]
		if r.hasCells(g) {
			continue
		}
		jobs = append(jobs, job{g, 0, func(ctx context.Context, p *grid.Player) error {
			lines, err := p.Cells(ctx)
			if err != nil {
				return err
			}
			return r.save(func() { r.lines = append(r.lines, lines...) })
		}})
	}
	return jobs
}

func (r *gridRun) hasCells(g *grid.Ground) bool {
	for _, share := range g.Shares {
		if !slices.ContainsFunc(r.lines, func(l grid.Line) bool { return l.Cell == g.Cell(share) }) {
			return false
		}
	}
	return true
}

// missingShapes returns the grounds without known best shapes. Of grounds that differ only in other things,
// it returns one.
func (r *gridRun) missingShapes(grounds []grid.Ground) []job {
	known := map[string]bool{}
	for i := range r.shaped {
		known[r.shaped[i].Name] = true
	}
	var jobs []job
	for i := range grounds {
		g := &grounds[i]
		if known[g.ShapedName()] {
			continue
		}
		known[g.ShapedName()] = true
		jobs = append(jobs, job{g, 0, func(ctx context.Context, p *grid.Player) error {
			s, err := p.Shapes(ctx)
			if err != nil {
				return err
			}
			return r.save(func() { r.shaped = append(r.shaped, *s) })
		}})
	}
	return jobs
}

// wantedFleets are the wanted fleets with wrong facts.
func (r *gridRun) wantedFleets() []grid.Fleet {
	name := func(f *grid.Fleet) []string { return []string{f.Name()} }
	wanted, _ := replay.Named(grid.Fleets(), named(r.only), name)
	return wanted
}

// missingFacts are the fleets with wrong facts that were not played yet.
func (r *gridRun) missingFacts() []job {
	var jobs []job
	fleets := r.wantedFleets()
	for i := range fleets {
		f := &fleets[i]
		if slices.ContainsFunc(r.facts, func(x grid.Facts) bool { return x.Fleet == f.Name() }) {
			continue
		}
		jobs = append(jobs, job{&f.Ground, f.Link, func(ctx context.Context, p *grid.Player) error {
			x, err := p.Facts(ctx, f)
			if err != nil {
				return err
			}
			return r.save(func() { r.facts = append(r.facts, *x) })
		}})
	}
	return jobs
}

// missingOracles are the grounds on which something has been played that oracles have not played. There are
// none unless oracles are wanted.
func (r *gridRun) missingOracles(grounds []grid.Ground) []job {
	var jobs []job
	if !r.wants("oracles") {
		return nil
	}
	for i := range grounds {
		g := &grounds[i]
		for _, share := range g.Shares {
			at := slices.IndexFunc(r.lines, func(l grid.Line) bool { return l.Cell == g.Cell(share) })
			if at >= 0 && len(r.lines[at].Known) < len(grid.Oracles) {
				jobs = append(jobs, job{g, 0, func(ctx context.Context, p *grid.Player) error {
					l := r.line(at)
					err := p.AddOracles(ctx, &l)
					return errors.Join(err, r.save(func() { r.lines[at] = l }))
				}})
			}
		}
		at := slices.IndexFunc(r.shaped, func(s grid.Shaped) bool { return s.Name == g.ShapedName() })
		if at >= 0 && r.shaped[at].WantsOracles() {
			jobs = append(jobs, job{g, 0, func(ctx context.Context, p *grid.Player) error {
				s := r.shapes(at)
				err := p.AddOraclesTo(ctx, &s)
				return errors.Join(err, r.save(func() { r.shaped[at] = s }))
			}})
		}
	}
	return jobs
}

// missingSeeds are the grounds on which something has been played with fewer seeds than are wanted.
func (r *gridRun) missingSeeds(grounds []grid.Ground) []job {
	var jobs []job
	for i := range grounds {
		g := &grounds[i]
		for _, share := range g.Shares {
			at := slices.IndexFunc(r.lines, func(l grid.Line) bool { return l.Cell == g.Cell(share) })
			if at >= 0 && r.lines[at].Plays() < r.seeds {
				jobs = append(jobs, job{g, 0, func(ctx context.Context, p *grid.Player) error {
					l := r.line(at)
					err := p.AddSeeds(ctx, &l, r.seeds)
					return errors.Join(err, r.save(func() { r.lines[at] = l }))
				}})
			}
		}
		at := slices.IndexFunc(r.shaped, func(s grid.Shaped) bool { return s.Name == g.ShapedName() })
		if at >= 0 && len(r.shaped[at].Usual.Ours.Again)+1 < r.seeds {
			jobs = append(jobs, job{g, 0, func(ctx context.Context, p *grid.Player) error {
				s := r.shapes(at)
				err := p.AddSeedsTo(ctx, &s, r.seeds)
				return errors.Join(err, r.save(func() { r.shaped[at] = s }))
			}})
		}
	}
	return jobs
}

func (r *gridRun) line(at int) grid.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[at]
}

func (r *gridRun) shapes(at int) grid.Shaped {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shaped[at]
}

// play runs jobs, several at a time. A failed job is reported, and the others continue.
func (r *gridRun) play(ctx context.Context, jobs []job, log io.Writer) error {
	group := errgroup.Group{}
	group.SetLimit(max(1, r.workers))
	for _, j := range jobs {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o := r.options
			o.Link = cmp.Or(j.link, o.Link)
			p, err := grid.NewPlayer(j.ground, o)
			if err == nil {
				err = j.do(ctx, p)
			}
			if err == nil || ctx.Err() != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed++
			fmt.Fprintln(log, "not played:", err)
			return nil
		})
	}
	return group.Wait()
}

// save changes the kept results, and writes the files anew. The files are small, and a reader never sees half
// a file.
func (r *gridRun) save(change func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	return errors.Join(
		replaceFile(r.file, func(w io.Writer) error { return grid.Write(w, r.lines) }),
		replaceFile(r.beside("shapes"), func(w io.Writer) error { return grid.Write(w, r.shaped) }),
		replaceFile(r.beside("facts"), func(w io.Writer) error { return grid.Write(w, r.facts) }))
}

// replaceFile writes a new file, and replaces the old one with it.
func replaceFile(name string, write func(io.Writer) error) error {
	partial := name + ".new"
	if err := writeFile(partial, write); err != nil {
		return err
	}
	return os.Rename(partial, name)
}

// openPlays loads the saved plays of rivals, and saves new ones.
func (r *gridRun) openPlays(ctx context.Context, log io.Writer) (closePlays func() error, err error) {
	name := r.beside("plays")
	r.options.Plays = grid.NewPlays()
	f, err := os.Open(name)
	switch {
	case err == nil:
		same, err := r.options.Plays.ReadPlays(ctx, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if !same {
			fmt.Fprintf(log, "%s is of other simulated engines: rivals are played anew\n", name)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	if err := replaceFile(name, func(w io.Writer) error { return r.options.Plays.Keep(ctx, w) }); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	r.options.Plays.Append(out)
	return out.Close, nil
}

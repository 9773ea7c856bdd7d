package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// faultRow is the result of one fault.
type faultRow struct {
	fault   string
	phases  []phaseRow
	leases  float64       // of the router, afterwards
	idle    time.Duration // until no engine had a block in use
	core    int           // answers compared afterwards
	coreErr error
	remarks []string
}

// phaseRow is the result of the requests that the fault found in one phase.
type phaseRow struct {
	phase                    string
	exact, clearError, wrong int
	longest, pause           time.Duration // longest answer, and longest pause in one
	errors                   []string      // the texts of the clear errors, each once
}

func (r *faultRow) count(one *flight, v worth, why string) {
	i := slices.IndexFunc(r.phases, func(p phaseRow) bool { return p.phase == one.phase })
	if i < 0 {
		i = len(r.phases)
		r.phases = append(r.phases, phaseRow{phase: one.phase})
	}
	p := &r.phases[i]
	p.longest, p.pause = max(p.longest, one.took), max(p.pause, one.landed.pause)
	switch v {
	case exact:
		p.exact++
	case clearError:
		p.clearError++
		if !slices.Contains(p.errors, why) {
			p.errors = append(p.errors, why)
		}
	case wrong:
		p.wrong++
	}
}

func (r *faultRow) remark(format string, args ...any) {
	r.remarks = append(r.remarks, fmt.Sprintf(format, args...))
}

// pause is the longest standstill of a stream.
func (r *faultRow) pause() (longest time.Duration) {
	for _, p := range r.phases {
		longest = max(longest, p.pause)
	}
	return longest
}

func (r *faultRow) noteCore(n int, err error) {
	r.core += n
	r.coreErr = errors.Join(r.coreErr, err)
}

// wantExact requires every answer to be exact: other engines and enough time were available.
func (r *faultRow) wantExact() error { return r.wantErrorsOnly("") }

// wantErrorsOnly requires every answer to be exact, except in one phase. In that phase some answers must be
// errors: otherwise the fault missed them.
func (r *faultRow) wantErrorsOnly(phase string) error {
	var errs []error
	for _, p := range r.phases {
		switch {
		case p.phase == phase && p.clearError == 0:
			errs = append(errs, fmt.Errorf("%s: the fault concerned none of %d", p.phase, p.exact))
		case p.phase != phase && p.clearError > 0:
			errs = append(errs, fmt.Errorf("%s: %d errors where the request could be tried again: %s",
				p.phase, p.clearError, strings.Join(p.errors, "; ")))
		}
	}
	return errors.Join(errs...)
}

// printFaults writes the table.
func printFaults(w io.Writer, rows []*faultRow) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t,
		"  fault\tfound\texact\tclear error\twrong\tlongest\tleases after\tno block after\tcore\t")
	for _, r := range rows {
		core := fmt.Sprintf("%d exact", r.core)
		if r.coreErr != nil {
			core = "DIFFERS"
		}
		fmt.Fprintf(t, "  %s\t\t\t\t\t\t%v\t%.2f s\t%s\t%s\n",
			r.fault, r.leases, r.idle.Seconds(), core, strings.Join(r.remarks, ", "))
		for _, p := range r.phases {
			fmt.Fprintf(t, "  \t%s\t%d\t%d\t%d\t%.1f s\t\t\t\t%s\n",
				p.phase, p.exact, p.clearError, p.wrong, p.longest.Seconds(), strings.Join(p.errors, "; "))
		}
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/report"
)

// drawing is a report in the making.
type drawing struct {
	file  string
	loads string // shares of the load that are played too, separated by commas
}

// play plays every policy at every load, draws the page, and returns the outcomes at the load of p.
func (d *drawing) play(ctx context.Context, p replay.Play, log io.Writer) ([]replay.Outcome, error) {
	scales, err := d.scales(p.Scale)
	if err != nil {
		return nil, err
	}
	fleet, err := p.Fleet()
	if err != nil {
		return nil, err
	}
	if err := p.CheckPolicies(fleet); err != nil {
		return nil, err
	}
	page := &report.Page{
		Title: "Tandem replay: " + filepath.Base(p.Trace), About: about(&p), Scale: p.Scale, SLO: p.SLO, Mix: p.Mix,
		Pools: [2]int{len(fleet.Nodes[cluster.Prefill]), len(fleet.Nodes[cluster.Decode])},
	}
	var main []replay.Outcome
	for _, name := range p.Policies {
		for _, scale := range scales {
			fmt.Fprintf(log, "%s at %g of the load\n", name, scale)
			at := p
			at.Scale = scale
			o, records, err := at.Once(ctx, name)
			if err != nil {
				return main, err
			}
			page.Runs = append(page.Runs, report.Run{Scale: scale, Outcome: *o, Records: records})
			if scale == p.Scale {
				main = append(main, *o)
				page.Length = max(page.Length, time.Duration(o.End*float64(time.Second)))
				page.Warm = max(page.Warm, replay.WarmUp(records))
			}
		}
	}
	return main, writeFile(d.file, page.Write)
}

// scales are the loads as absolute scales, with the scale of the play.
func (d *drawing) scales(of float64) ([]float64, error) {
	all := []float64{of}
	for text := range strings.SplitSeq(d.loads, ",") {
		if text == "" {
			continue
		}
		share, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(share > 0) {
			return nil, wrongValue("--loads: %q is no share of the load; write for example 0.5,1,1.5", text)
		}
		if !slices.Contains(all, share*of) {
			all = append(all, share*of)
		}
	}
	slices.Sort(all)
	return all, nil
}

// about describes the play.
func about(p *replay.Play) []report.Fact {
	facts := []report.Fact{
		{Name: "trace", Value: p.Trace},
		{
			Name:  "cluster",
			Value: p.Cluster + ", " + p.Profile + fmt.Sprintf(", cache x%g, %g GB/s", p.Cache, p.Link),
		},
		{Name: "load", Value: fmt.Sprintf("x%g, seed %d", p.Scale, p.Seed)},
		{Name: "a router hears", Value: fmt.Sprintf("of blocks after %v, of load every %v", p.EventLag, p.Poll)},
	}
	if p.For > 0 {
		facts = append(facts, report.Fact{Name: "for", Value: p.For.String()})
	}
	return facts
}

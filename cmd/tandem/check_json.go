package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/tandem-router/tandem/internal/config"
)

// checked is the output of check -json.
type checked struct {
	File     string    `json:"file"`
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"` // of File, or of Against; empty where both are good
	// What the text of check has as notes: empty pools, names with several addresses, missing folders.
	Notes []string `json:"notes"`
	// YAML: every value as it would be in force, secrets hidden.
	InForce string         `json:"config,omitempty"`
	Against string         `json:"against,omitempty"`
	Changes []configChange `json:"changes,omitzero"` // what a reload from Against to File would change
	Restart bool           `json:"restart"`          // some of the changes need one
}

// problem has a position only if it is known.
type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

type configChange struct {
	Field   string `json:"field"`
	Old     string `json:"old"`
	New     string `json:"new"`
	Restart bool   `json:"restart"`
}

// writeJSON writes one object for every outcome. The error is the reason for exit code 1.
func (o *checkOptions) writeJSON(
	ctx context.Context, read func(string) (*config.Config, error), file string, stdout io.Writer,
) error {
	report := checked{File: file, Against: o.against, Problems: []problem{}, Notes: []string{}}
	write := func(err error) error {
		report.OK = err == nil
		return errors.Join(err, json.NewEncoder(stdout).Encode(report))
	}
	c, err := report.read(read, file)
	if err != nil {
		return write(err)
	}
	text, err := c.YAML()
	if err != nil {
		return write(err)
	}
	report.InForce = string(text)
	report.Notes = append(report.Notes, o.notes(ctx, c)...)
	if o.against == "" {
		return write(nil)
	}
	old, err := report.read(read, o.against)
	if err != nil {
		return write(err)
	}
	report.Changes = []configChange{}
	for _, d := range config.Diff(old, c) {
		restart := d.Effect == config.NeedsRestart
		report.Changes = append(report.Changes, configChange{d.Field, d.Old, d.New, restart})
		report.Restart = report.Restart || restart
	}
	return write(nil)
}

// read records the problems of file; it may not be readable at all.
func (r *checked) read(read func(string) (*config.Config, error), file string) (*config.Config, error) {
	c, err := read(file)
	problems, ok := errors.AsType[config.Problems](err)
	switch {
	case err == nil:
		return c, nil
	case !ok:
		r.Problems = append(r.Problems, problem{File: file, Message: err.Error()})
		return nil, err
	}
	for _, p := range problems {
		r.Problems = append(r.Problems, problem{file, p.Line, p.Column, p.Field, p.Message, p.Fix})
	}
	return nil, countProblems(file, problems)
}

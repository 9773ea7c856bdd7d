package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/why"
	"github.com/tandem-router/tandem/orchestrator/admin"
)

// drainCommand lets a running router send no new requests to a replica.
func drainCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "drain {NAME | URL}", Short: "send no new requests to a replica, so that it can be stopped",
		Long: "Sends no new requests to a replica, named by name or URL. Running requests end there. Then " +
			"you can stop the engine.\nWith several routers, drain the replica on each router.\n\n" +
			"Exit codes: 0 done (with --wait: the replica is empty), 1 refused or failed, 2 the command line is " +
			"wrong, 3 not\nempty in time. " + adminNote,
		Args: between(1, 1, "one replica"),
	}
	d := drainOrder{act: "drain"}
	admin := adminFlag(c)
	wait := c.Flags().Bool("wait", false, "wait until the replica is empty")
	timeout := c.Flags().Duration("timeout", 10*time.Minute,
		"with --wait: give up after this `time`; the replica stays drained")
	c.Flags().BoolVar(&d.force, "force", false, "drain the last usable replica too: its requests get 503")
	c.RunE = func(c *cobra.Command, args []string) error {
		d.admin = *admin
		d.name, d.out = args[0], c.OutOrStdout()
		if err := d.send(c.Context()); err != nil || !*wait {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(c.Context(), *timeout, errNotInTime)
		defer cancel()
		return d.wait(ctx)
	}
	return c
}

// undrainCommand lets a running router use a replica again.
func undrainCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "undrain {NAME | URL}", Short: "use a drained replica again",
		Long: "Sends requests to a drained replica again. " + adminNote,
		Args: between(1, 1, "one replica"),
	}
	admin := adminFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		d := drainOrder{act: "undrain", admin: *admin, name: args[0], out: c.OutOrStdout()}
		return d.send(c.Context())
	}
	return c
}

// errNotInTime is the failure of a wait that may still succeed later. Its exit code is [exitLate].
var errNotInTime = errors.New("not in time")

// drainOrder is one command about a replica.
type drainOrder struct {
	out       io.Writer
	act       string // drain or undrain
	admin     string // address
	name      string
	force     bool
	said      string // the newest line of progress
	unreached error  // why the newest look failed
}

// send gives the command and prints the outcome.
func (d *drainOrder) send(ctx context.Context) error {
	a, err := d.ask(ctx, http.MethodPost, d.act)
	if err != nil {
		return err
	}
	d.print(a)
	for _, note := range a.Notes {
		fmt.Fprintf(d.out, "note: %s\n", note)
	}
	return nil
}

// wait checks each second whether the replica is empty. If the router restarts meanwhile, wait continues.
func (d *drainOrder) wait(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		a, err := d.ask(ctx, http.MethodGet, "drain")
		_, refused := errors.AsType[refusal](err)
		switch {
		case refused:
			return err
		case err != nil && ctx.Err() != nil: // the time is over, which says nothing about the router
		case err != nil:
			d.unreached = err
		case a.Drained():
			d.print(a)
			return nil
		case a.Replicas[0].State == admin.InUse:
			return fmt.Errorf("%s is in use again: somebody ended its draining, or the router was restarted and "+
				"has no state.file", d.name)
		default:
			d.unreached = nil
			d.print(a)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, errNotInTime) {
				return err
			}
			if d.unreached != nil {
				return fmt.Errorf("%s is not known to be empty: %w: %w", d.name, errNotInTime, d.unreached)
			}
			return fmt.Errorf("%s is not empty: %w", d.name, errNotInTime)
		}
	}
}

// print writes a line for each replica, if there is anything new.
func (d *drainOrder) print(a *admin.DrainAnswer) {
	var text strings.Builder
	for _, r := range a.Replicas {
		fmt.Fprintf(&text, "%s (%s) is %s", r.Name, r.Pool, r.State)
		if r.Left != "" {
			fmt.Fprintf(&text, ": %s", r.Left)
		}
		text.WriteByte('\n')
	}
	if d.said != text.String() {
		d.said = text.String()
		_, _ = io.WriteString(d.out, d.said)
	}
}

// refusal is the router's answer to a command that it does not obey.
type refusal string

func (r refusal) Error() string { return string(r) }

func (d *drainOrder) ask(ctx context.Context, method, act string) (*admin.DrainAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	query := url.Values{"replica": {d.name}}
	if d.force {
		query.Set("force", "true")
	}
	resp, err := why.Ask(ctx, method, adminURL(d.admin), adminToken(), "-/"+act+"?"+query.Encode())
	switch {
	case errors.Is(err, why.ErrToken), errors.Is(err, why.ErrNotAdmin):
		return nil, refusal(err.Error())
	case err != nil:
		return nil, err
	}
	defer resp.Body.Close()
	a := &admin.DrainAnswer{}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(a)
	switch {
	case a.Error != "":
		return nil, refusal(a.Error)
	case err != nil || len(a.Replicas) == 0:
		return nil, refusal(fmt.Sprintf("%s answers %s without replicas: it is a Tandem of another "+
			"version", d.admin, resp.Status))
	}
	return a, nil
}

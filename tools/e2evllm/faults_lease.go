package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// routerPastMargin stops the router between the legs for longer than its margin, but shorter than the lease:
// the params must not be sent, and the blocks must be given back.
func routerPastMargin(ctx context.Context, f *faulting) error {
	r, err := f.serve(ctx, "margin", fmt.Sprintf("connector: {margin: %s}", marginFew),
		"timeouts: {prefill: 1m}")
	if err != nil {
		return err
	}
	held, err := f.holdBetweenLegs(ctx, r, "between the legs, past the margin", 4)
	if err != nil {
		return err
	}
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, marginFew+time.Second)
	r.process.unfreeze()
	stopFlow()
	err = f.landAll(ctx)
	return errors.Join(err, f.wantAged(ctx, r, held), f.after(ctx, 2*time.Second), f.noLeases(ctx, r, ""),
		r.end())
}

// wantAged requires r to have found the transfer params of n prefills too old: all params that it had when it
// stood still.
func (f *faulting) wantAged(ctx context.Context, r *router, n float64) error {
	aged, err := r.aged(ctx)
	aged -= f.aged
	if err == nil && (aged != n || n == 0) {
		err = fmt.Errorf("%v of the %v transfer params that were older than the margin were refused", aged, n)
	}
	f.row.remark("%v of %v old params refused", aged, n)
	return err
}

// aged is the number of transfer params that the router has found too old. On a busy machine some may grow
// old without a fault.
func (r *router) aged(ctx context.Context) (float64, error) {
	return r.series(ctx, "tandem_transfer_params_refused_total", `reason="expired"`)
}

// allBeyondLease stops a router between the legs, a prefill engine and a decode engine for longer than the
// lease, while the other engines serve. The engines have a router that would wait for longer than the lease.
// That router must notice which engine is silent. Otherwise it would read blocks that belong to another
// request by then.
func allBeyondLease(ctx context.Context, f *faulting) error {
	// Otherwise the prefill would be too old, not its answer.
	stopped, err := f.serve(ctx, "lease", "timeouts: {prefill: 1m}")
	if err != nil {
		return err
	}
	// The small margin makes the router call an engine silent after two thirds of 26 s. d0 must not stand
	// still for so long: with both decode engines silent, errors would be right.
	patient, err := f.serve(ctx, "patient", fmt.Sprintf("connector: {margin: %s}", marginFew),
		"timeouts: {prefill: 25s, decode_first: 2m, decode_idle: 1m, answer: 2m}")
	if err != nil {
		return err
	}
	usual := f.router
	defer func() { f.router = usual }()
	f.router = patient
	held, err := f.holdBetweenLegs(ctx, stopped, "between the legs, past the lease", 4)
	if err != nil {
		return err
	}
	err = f.longPause(ctx)
	f.letGo()
	err = errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.wantAged(ctx, stopped, held))
	return errors.Join(err, f.after(ctx, 2*time.Second), f.noLeases(ctx, stopped, ""), stopped.end(),
		patient.end())
}

// longPause stops p1 and d1, with requests in all phases, until all leases have expired and other requests
// use their blocks.
func (f *faulting) longPause(ctx context.Context) error {
	if err := f.holdStreams(ctx, 3, "d1"); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 3, "p1", "d1"); err != nil {
		return err
	}
	f.freeze("p1")
	f.unfreeze("d0") // d0 begins to pull from p1, which stands still
	if err := f.holdFirstLegs(ctx, 4, "p1"); err != nil {
		return err
	}
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, leaseTime+2*time.Second)
	err := f.overwrite(ctx, "p0")
	f.unfreeze("p1", "d1")
	stopFlow()
	return err
}

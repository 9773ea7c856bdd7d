package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// coreBeyondLease stops the cores of both decode engines for longer than the lease, while their API processes
// answer. When the cores continue, they read the blocks of another prompt. No silence reveals this, only the
// late start of the answers. The blocks in their caches are wrong from then on and must never be used.
//
// Long: a scene in its order.
func coreBeyondLease(ctx context.Context, f *faulting) error {
	patient, err := f.serve(ctx, "core",
		"timeouts: {prefill: 1m, decode_first: 2m, decode_idle: 1m, answer: 2m}")
	if err != nil {
		return err
	}
	usual := f.router
	defer func() { f.router = usual }()
	f.router = patient
	for _, name := range []string{"d0", "d1"} {
		if err := f.s.engine(name).freezeCore(); err != nil {
			return err
		}
	}
	const phase = "at a core that stands still"
	for i := range 6 {
		q := f.completion((5+i)*blockTokens, 8)
		if i%2 == 0 {
			q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
		}
		f.launch(ctx, patient, phase, q)
	}
	held := f.flying
	if err := f.allPrefilled(ctx); err != nil {
		return err
	}
	pause(ctx, leaseTime+2*time.Second)
	err = errors.Join(f.overwrite(ctx, "p0"), f.overwrite(ctx, "p1"))
	f.unfreeze("d0", "d1")
	err = errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.wantDisbelieved(ctx))
	for _, one := range held { // their last blocks in the decode engines' caches are wrong
		q := plainIDs(append(one.body["prompt"].([]int), f.g.ids(9)...), 8)
		if res := f.s.compare(ctx, patient, q); res.diff != "" {
			err = errors.Join(err, fmt.Errorf("asked again, longer: %s: %s", res.id, res.diff))
		}
	}
	// An audit asks engines directly, and would find blocks that routers no longer use.
	for _, name := range []string{"d0", "d1"} {
		err = errors.Join(err, f.s.engine(name).kill(), f.s.startEngine(f.s.engine(name)))
	}
	if err != nil {
		return err
	}
	f.row = &faultRow{fault: "decode is restarted, and trusted again"}
	f.rows = append(f.rows, f.row)
	return errors.Join(f.comeBack(ctx, 0, "d0", "d1"), patient.end())
}

// allPrefilled returns when every request in flight is past its first leg.
func (f *faulting) allPrefilled(ctx context.Context) error {
	return eventually(ctx, 15*time.Second, func() error {
		return errors.Join(f.hasLeases(ctx, f.router, len(f.flying), `pool="decode"`),
			f.noLeases(ctx, f.router, "prefill"))
	})
}

// wantDisbelieved requires that the router has discarded answers: otherwise the scene tested nothing.
func (f *faulting) wantDisbelieved(ctx context.Context) error {
	late, err := f.router.series(ctx, "tandem_late_answers_total")
	believed, errBelieved := f.router.series(ctx, "tandem_late_answers_total", `verdict="believed"`)
	f.row.remark("%v of %v late answers were discarded", late-believed, late)
	if err = errors.Join(err, errBelieved); err == nil && late == believed {
		err = errors.New("no answer was late enough to be discarded, so nothing was tested")
	}
	return err
}

// freezeCore stops the engine's core and its workers. The API process, which leads the group, continues.
func (e *engine) freezeCore() error {
	var err error
	stopped := 0
	for _, m := range members(e.process.pid) {
		if name, _ := os.ReadFile(filepath.Join(m.dir, "comm")); strings.HasPrefix(string(name), "VLLM::") {
			err = errors.Join(err, syscall.Kill(m.pid, syscall.SIGSTOP))
			stopped++
		}
	}
	if stopped == 0 {
		err = errors.Join(err,
			fmt.Errorf("%s has no process that is called VLLM::EngineCore or VLLM::Worker", e.Name))
	}
	return err
}

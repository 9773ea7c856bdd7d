package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// A fault needs requests in a known phase. A stopped engine holds every request that waits for it, so the
// fault finds requests in the intended phase, not in a random one.
//
//	prefill engines stopped         leg 1 is in flight
//	decode engines stopped          leg 1 has been answered, leg 2 sent, there is no first byte
//	a stream has begun              mid-stream
//	router stopped, then prefill    leg 1 has been answered, the router has not read it
//	engines let go

// vLLM's lease of prefilled blocks (kv_lease_duration of NIXL's connector), which no flag of the suite
// changes, and the margins of the routers.
const (
	leaseTime = 30 * time.Second
	marginFew = 4 * time.Second // of the router that stands still for a little longer than that
)

// answerLimit is the largest accepted age of a request, whatever happens. The timeouts of faultSettings end a
// request before that, all attempts included. They are longer than any standstill of a scene, and long enough
// for a busy machine.
const answerLimit = 4 * time.Minute

// manyRetries are needed if many requests fail at once and all must be tried again.
const manyRetries = "retry: {min: 64}"

// evenSpeeds lets the router choose by blocks and waiting requests, whatever speeds it measures. With
// measured speeds the router would avoid an engine that stood still once. The next fault would then find no
// request there, and a repeated prompt would go to another replica. On a busy machine engines stand still for
// seconds.
const evenSpeeds = "experimental: {scoring: {units: raw}}"

// knownChats lets a router keep the token ids of chats for its whole life. Otherwise it would ask stopped
// engines again.
const knownChats = "tokenizer: {chat_ttl: 24h}"

// faultSettings are the settings of the router that serves through all faults.
var faultSettings = []string{
	"local: never", manyRetries, evenSpeeds, knownChats,
	"timeouts: {prefill: 1m, decode_first: 75s, decode_idle: 1m, answer: 75s, queue: 1m, probe: 5s}",
}

// flowRest is the pause between requests beside a fault: enough for the engines' own work on two cores.
const flowRest = 200 * time.Millisecond

// flowing is the phase of requests that no fault must find.
const flowing = "beside, flowing"

// scene is one or several faults that happen together.
type scene struct {
	key  string
	name string
	play func(context.Context, *faulting) error
}

var scenes = []scene{
	{"margin", "the router stands still past the margin", routerPastMargin},
	{"leave", "clients leave at any moment", clientsLeave},
	{"prefill-pauses", "prefill stands still for 5 s", prefillPauses},
	{"decode-pauses", "decode stands still for 5 s", decodePauses},
	{"prefill-dies", "prefill is killed", prefillDies},
	{"decode-dies", "decode is killed; both come back under load", decodeDies},
	{"router-dies", "the router is killed; idle engines are restarted", routerDies},
	{"long", "router, prefill and decode stand still beyond the lease", allBeyondLease},
	{
		"core", "the cores of decode engines stand still beyond the lease, but their API answers",
		coreBeyondLease,
	},
}

func (s scene) called() string { return s.key }

func faultNames() string { return namesOf(scenes, scene.called) }

// chosenScenes are the scenes with these names, separated by commas. Without names, all scenes.
func chosenScenes(names string) ([]scene, error) {
	if names == "" {
		return scenes, nil
	}
	return pickNamed(scenes, names, scene.called, "-faults: no fault")
}

// faults plays every fault.
func faults(ctx context.Context, s *stage) error {
	chosen, err := chosenScenes(s.options.faults)
	if err != nil {
		return err
	}
	return (&faulting{s: s, g: newGenerator(s.seed + 7000)}).playAll(ctx, "faults", chosen)
}

// playAll plays scenes with one router, whose configuration has this name. It compares the answers of
// requests in flight, and of later requests, with the answers of the engine that splits nothing.
func (f *faulting) playAll(ctx context.Context, name string, chosen []scene) (err error) {
	if f.file, err = f.s.configure(name, faultSettings...); err != nil {
		return err
	}
	if f.router, err = f.s.serve(ctx, f.file); err != nil {
		return err
	}
	defer func() { printFaults(os.Stdout, f.rows) }()
	if err := f.warm(ctx); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	var errs []error
	for _, sc := range chosen {
		say("fault: %s", sc.name)
		f.row = &faultRow{fault: sc.name}
		f.rows = append(f.rows, f.row)
		f.broken = f.brokenLegs(ctx)
		err := f.prime(ctx, f.router) // the token ids of an ended engine are forgotten
		if err == nil {
			err = sc.play(ctx, f)
		}
		if err = errors.Join(err, f.settle(ctx)); err != nil {
			say("fault: %s FAILED: %v", sc.name, err)
			errs = append(errs, fmt.Errorf("%s: %w", sc.name, err), f.s.mend(ctx))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(append(errs, f.router.end(), f.s.mend(ctx))...)
}

// faulting is the state of the act. One goroutine owns it. The goroutines of flow hand over their requests
// when they end.
type faulting struct {
	s      *stage
	router *router
	file   string // its configuration
	g      *generator
	count  int     // of requests made
	aged   float64 // transfer params that were too old before the fault
	broken float64 // decode legs that the router had to repeat before the scene
	pushed bool    // by NIXL push: completions and chats are split, and unused leases stay until they end
	row    *faultRow
	rows   []*faultRow
	flying []*flight
	recent [][]int // prompts, the newest last
}

// warm completes the handshakes of all pairs and the slow first requests of engines before any fault.
func (f *faulting) warm(ctx context.Context) error {
	f.row = &faultRow{fault: "none"}
	f.rows = append(f.rows, f.row)
	for range 2 { // enough for an audit, too
		if err := f.prime(ctx, f.router); err != nil {
			return err
		}
	}
	return f.after(ctx, 2*time.Second)
}

// serve starts a router for one fault. Its timeouts outlast the fault.
func (f *faulting) serve(ctx context.Context, name string, more ...string) (*router, error) {
	file, err := f.s.configure(name,
		append([]string{"local: never", manyRetries, evenSpeeds, knownChats}, more...)...)
	if err != nil {
		return nil, err
	}
	r, err := f.s.serve(ctx, file)
	if err != nil {
		return nil, err
	}
	return r, f.prime(ctx, r)
}

// prime lets a router that has just started learn the token ids of all texts. Otherwise it would ask stopped
// engines for them.
func (f *faulting) prime(ctx context.Context, r *router) error {
	f.hold(ctx, r, "nothing fails", kinds)
	return f.landAll(ctx)
}

// prefillPauses stops p0 for five seconds: while decode engines pull from it, while it has prompts to
// prefill, and mid-stream.
func prefillPauses(ctx context.Context, f *faulting) error {
	if err := f.holdAllPhases(ctx); err != nil {
		return err
	}
	f.unfreeze("d0", "d1") // they pull from p0 now
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, 5*time.Second)
	f.unfreeze("p0")
	stopFlow()
	return errors.Join(f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second))
}

// decodePauses stops d0 for five seconds mid-stream and before the first byte.
func decodePauses(ctx context.Context, f *faulting) error {
	if err := f.holdStreams(ctx, 3, "d0"); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 4, "d0"); err != nil {
		return err
	}
	f.unfreeze("d1")
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, 5*time.Second)
	f.unfreeze("d0")
	stopFlow()
	return errors.Join(f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second))
}

// prefillDies kills p0: after its leg, before the decode engines have pulled; during its leg; and before it,
// while the router does not know yet.
func prefillDies(ctx context.Context, f *faulting) error {
	if err := f.holdAllPhases(ctx); err != nil {
		return err
	}
	p0 := f.s.engine("p0")
	if err := p0.kill(); err != nil {
		return err
	}
	f.hold(ctx, f.router, "just before leg 1", 3)
	f.unfreeze("d0", "d1")
	stopFlow := f.flow(ctx, 1, flowRest)
	err := errors.Join(f.landAll(ctx), f.wantDown(ctx, "p0"))
	stopFlow()
	err = errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second))
	return errors.Join(err, f.s.startEngine(p0))
}

// decodeDies kills d0 mid-stream and before the first byte. Its streams are greedy and continue on another
// engine. Then both killed engines come back under load.
func decodeDies(ctx context.Context, f *faulting) error {
	before, err := f.router.continued(ctx)
	if err := errors.Join(err, f.holdStreams(ctx, 3, "d0")); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 4, "d0"); err != nil {
		return err
	}
	f.unfreeze("d1") // if that took longer than a probe may, d1 is out, and no engine is left for the streams
	if err := f.awaitUp(ctx, "d1"); err != nil {
		return err
	}
	d0 := f.s.engine("d0")
	if err := d0.kill(); err != nil {
		return err
	}
	f.hold(ctx, f.router, "just before leg 2", 3)
	err = errors.Join(f.landAll(ctx), f.wantDown(ctx, "d0"), f.row.wantExact(), f.wantContinued(ctx, before),
		f.s.startEngine(d0))
	if err = errors.Join(err, f.after(ctx, leaseTime+2*time.Second)); err != nil {
		return err
	}
	f.row = &faultRow{fault: "prefill and decode come back under load"}
	f.rows = append(f.rows, f.row)
	return f.comeBack(ctx, 2, "p0", "d0")
}

// routerDies kills the router with requests in all phases and starts it again at its address. The leases that
// no router can give back expire while idle engines restart.
func routerDies(ctx context.Context, f *faulting) error {
	if err := f.holdStreams(ctx, 2, "d0"); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 3, "d0"); err != nil {
		return err
	}
	f.freeze("p0", "p1")
	f.hold(ctx, f.router, "leg 1 in flight, or between the legs", 4)
	if err := eventually(ctx, 15*time.Second,
		func() error { return f.hasLeases(ctx, f.router, 4, `pool="prefill"`) }); err != nil {
		return err
	}
	f.router.process.freeze()
	f.unfreeze("p0")
	if err := f.prefilled(ctx, "p0"); err != nil {
		return err
	}
	if err := stop([]*process{f.router.process}, 0); err != nil {
		return err
	}
	f.unfreeze("p1", "d0", "d1")
	if err := f.landCut(ctx); err != nil {
		return err
	}
	died := time.Now()
	r, err := f.s.serveAt(ctx, f.file, strings.TrimPrefix(f.router.front, "http://"))
	if err != nil {
		return err
	}
	f.router = r
	if err := errors.Join(f.checkCaches(ctx), f.prime(ctx, r), f.checkCore(ctx)); err != nil {
		return err
	}
	return f.restartIdle(ctx, died)
}

// restartIdle restarts p1 and d1 while nothing is in flight, and requires that the other engines' leases of
// the dead router expire meanwhile.
func (f *faulting) restartIdle(ctx context.Context, died time.Time) error {
	p1, d1 := f.s.engine("p1"), f.s.engine("d1")
	if err := errors.Join(p1.kill(), d1.kill(), f.s.startEngine(p1), f.s.startEngine(d1)); err != nil {
		return err
	}
	if err := f.awaitBooks(ctx, f.living(ctx), time.Until(died.Add(leaseTime+2*time.Second)),
		died); err != nil {
		return err
	}
	f.row = &faultRow{fault: "prefill and decode are restarted while idle"}
	f.rows = append(f.rows, f.row)
	return f.comeBack(ctx, 0, "p1", "d1")
}

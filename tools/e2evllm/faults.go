package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Faults are made where requests are held: an engine that is stopped holds whatever waits for it, so that the
// fault finds requests in the phase that is meant and not in one that luck has chosen.
//
//	prefill engines stopped         leg 1 is in flight
//	decode engines stopped          leg 1 has been answered, leg 2 sent, there is no first byte
//	a stream has begun              mid-stream
//	router stopped, then prefill    leg 1 has been answered, the router has not read it
//	engines let go

// vLLM's lease of prefilled blocks (kv_lease_duration of NIXL's connector), which no flag of the suite
// changes, and the margin that Tandem is given.
const (
	leaseTime = 30 * time.Second
	marginFew = 4 * time.Second // of the router that stands still for a little longer than that
)

// answerLimit is the age at which a request is too old, whatever happens to it. The time-outs of
// faultSettings let it end before, all attempts included; they are longer than anything that stands still
// for a scene, and than what engines need where a machine is busy.
const answerLimit = 4 * time.Minute

// manyRetries are needed where many requests fail at once, and each shall be tried again.
const manyRetries = "retry: {min: 64}"

// evenSpeeds are of all engines, always: an engine that stood still once would be thought slow, and be
// avoided by the next fault that wants it.
const evenSpeeds = "experimental: {scoring: {speed: {prefill: 1000, local: 1000, decode: 50}}}"

// knownChats lets a router keep the token ids of chats for as long as it lives: it would ask engines that
// stand still for them again.
const knownChats = "tokenizer: {chat_ttl: 24h}"

// faultSettings are those of the router that lives through all faults.
var faultSettings = []string{
	"local: never", manyRetries, evenSpeeds, knownChats,
	"timeouts: {prefill: 1m, decode_first: 75s, decode_idle: 1m, answer: 75s, queue: 1m, probe: 5s}",
}

// flowRest is the rest between requests beside a fault: enough for the engines' own work on two cores.
const flowRest = 200 * time.Millisecond

// flowing is the phase of requests that no fault is meant to find.
const flowing = "beside, flowing"

// scene is one or several faults that are made together.
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
	{"core", "the cores of decode engines stand still beyond the lease, and their API answers", coreBeyondLease},
}

func (s scene) called() string { return s.key }

func faultNames() string { return namesOf(scenes, scene.called) }

// chosenScenes are those of the names, separated by commas; all without names.
func chosenScenes(names string) ([]scene, error) {
	if names == "" {
		return scenes, nil
	}
	return pickNamed(scenes, names, scene.called, "-faults: no fault")
}

// faults makes every fault, and holds the answers of what was in flight, and of what comes after, to those of
// the engine that splits nothing.
func faults(ctx context.Context, s *stage) error {
	chosen, err := chosenScenes(s.options.faults)
	if err != nil {
		return err
	}
	f := &faulting{s: s, g: newGenerator(s.seed + 7000)}
	file, err := s.configure("faults", faultSettings...)
	if err != nil {
		return err
	}
	if f.router, err = s.serve(ctx, file); err != nil {
		return err
	}
	f.file = file
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
		err := f.prime(ctx, f.router) // engines that came back took the token ids with them that they had told
		if err == nil {
			err = sc.play(ctx, f)
		}
		if err = errors.Join(err, f.settle(ctx)); err != nil {
			say("fault: %s FAILED: %v", sc.name, err)
			errs = append(errs, fmt.Errorf("%s: %w", sc.name, err), s.mend(ctx))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(append(errs, f.router.end(), s.mend(ctx))...)
}

// faulting is the act while it is played. One goroutine owns it; those of flow hand over what they have sent
// when they end.
type faulting struct {
	s      *stage
	router *router
	file   string // its configuration
	g      *generator
	count  int     // of requests made
	aged   float64 // transfer params that were too old before any was held
	broken float64 // decode legs of the router, before the scene, that had to be sent again
	row    *faultRow
	rows   []*faultRow
	flying []*flight
	recent [][]int // prompts, the newest last
}

// warm lets each pair shake hands, and the engines' first requests be slow, before anything fails.
func (f *faulting) warm(ctx context.Context) error {
	f.row = &faultRow{fault: "none"}
	f.rows = append(f.rows, f.row)
	for range 2 { // which is enough for an audit, too
		if err := f.prime(ctx, f.router); err != nil {
			return err
		}
	}
	return f.after(ctx, 2*time.Second)
}

// routerPastMargin stops the router between the legs for longer than its margin, but not as long as the
// lease: the params must not be sent, and the blocks be given back.
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
	r.process.thaw()
	stopFlow()
	err = f.landAll(ctx)
	return errors.Join(err, f.wantAged(ctx, r, held), f.after(ctx, 2*time.Second), f.noLeases(ctx, r, ""),
		r.end())
}

// serve starts a router of its own for a fault, whose patience with a prefill does not end before that.
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

// prime lets a router that has just started learn the token ids of all texts, for which it would else ask
// engines that stand still.
func (f *faulting) prime(ctx context.Context, r *router) error {
	f.hold(ctx, r, "nothing fails", kinds)
	return f.landAll(ctx)
}

// holdBetweenLegs sends n requests, stops r when it has planned them, and returns how many of them have been
// prefilled then, which r has not read: all but those whose leg 1 had not left r yet.
func (f *faulting) holdBetweenLegs(ctx context.Context, r *router, phase string, n int) (float64, error) {
	before, err := f.prefills(ctx)
	aged, errAged := r.aged(ctx)
	if err := errors.Join(err, errAged); err != nil {
		return 0, err
	}
	f.aged = aged
	f.freeze("p0", "p1")
	f.hold(ctx, r, phase, n)
	if err := eventually(ctx, 15*time.Second,
		func() error { return f.hasLeases(ctx, r, n, `pool="prefill"`) }); err != nil {
		return 0, err
	}
	r.process.freeze()
	f.thaw("p0", "p1")
	if err := f.prefilled(ctx, "p0", "p1"); err != nil {
		return 0, err
	}
	after, err := f.prefills(ctx)
	return after - before, err
}

// prefills is how many requests the prefill engines have answered.
func (f *faulting) prefills(ctx context.Context) (float64, error) {
	sum := 0.0
	for _, name := range []string{"p0", "p1"} {
		byReason, err := f.s.engine(name).metric(ctx, "vllm:request_success_total{")
		if err != nil {
			return 0, err
		}
		for _, n := range byReason {
			sum += n
		}
	}
	return sum, nil
}

// prefilled returns when the prefill engines of the names, which have just been let go, have answered what
// they were asked.
func (f *faulting) prefilled(ctx context.Context, names ...string) error {
	calm := 0
	return eventually(ctx, 20*time.Second, func() error {
		kept := 0.0
		for _, name := range names {
			e := f.s.engine(name)
			runs, err := e.metric(ctx, "vllm:num_requests_running{")
			waits, errWaits := e.metric(ctx, "vllm:num_requests_waiting{")
			used, errUsed := e.usage(ctx)
			if err := errors.Join(err, errWaits, errUsed); err != nil {
				return err
			}
			if runs[0]+waits[0] > 0 {
				calm = 0
				return fmt.Errorf("%s still runs %v of the held prefills", name, runs[0]+waits[0])
			}
			kept += used
		}
		if kept == 0 {
			return errors.New("no prefill engine keeps blocks: nothing is between the legs")
		}
		if calm++; calm < 5 { // what has just been let go may not have looked at its sockets yet
			return errors.New("the prefill engines have only just finished")
		}
		return nil
	})
}

// wantAged wants r to have found the transfer params of n prefills too old, which are all that it had when it
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

// aged is how many transfer params the router has found too old. A machine that is busy may let some grow
// old that no fault has held.
func (r *router) aged(ctx context.Context) (float64, error) {
	return r.series(ctx, "tandem_transfer_params_refused_total", `reason="expired"`)
}

// prefillPauses stops p0 for five seconds while decode engines pull from it, while it has prompts to prefill,
// and mid-stream.
func prefillPauses(ctx context.Context, f *faulting) error {
	if err := f.holdAllPhases(ctx); err != nil {
		return err
	}
	f.thaw("d0", "d1") // which pull from p0 now
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, 5*time.Second)
	f.thaw("p0")
	stopFlow()
	return errors.Join(f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second))
}

// holdAllPhases leaves p0, d0 and d1 stopped: streams have begun, blocks of p0 wait to be pulled, and p0 has
// prompts to prefill.
func (f *faulting) holdAllPhases(ctx context.Context) error {
	if err := f.holdStreams(ctx, 2, "d0"); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 4, "p0"); err != nil {
		return err
	}
	f.freeze("p0")
	return f.holdFirstLegs(ctx, 4, "p0")
}

// holdStreams starts n long streams or more, some of them of the victim, and returns when all have begun.
func (f *faulting) holdStreams(ctx context.Context, n int, victim string) error {
	for i := range n + 6 {
		if i >= n && f.keeps(ctx, victim) > 0 {
			return nil
		}
		q := f.completion(60, 160)
		q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
		if err := awaitFirst(ctx, f.launch(ctx, f.router, "mid-stream", q), 20*time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("none of %d streams comes from %s: the fault would find nothing", n+6, victim)
}

// holdSecondLegs returns when n or more requests wait for decode engines that stand still, the victims among
// them: they have prefilled some of them, or have been sent some.
func (f *faulting) holdSecondLegs(ctx context.Context, n int, victims ...string) error {
	before := map[string]float64{}
	for _, name := range victims {
		before[name] = f.keeps(ctx, name)
	}
	f.freeze("p0", "p1") // so that there is something queued, which the router spreads
	f.hold(ctx, f.router, "leg 2 sent", n)
	err := eventually(ctx, 15*time.Second,
		func() error { return f.hasLeases(ctx, f.router, n, `pool="prefill"`) })
	f.thaw("p0", "p1")
	if err != nil {
		return err
	}
	return f.holdMore(ctx, "leg 2 sent", func() error {
		for _, name := range victims {
			if f.keeps(ctx, name) <= before[name] {
				return fmt.Errorf("no leg 2 has to do with %s: the fault would find nothing", name)
			}
		}
		return f.noLeases(ctx, f.router, "prefill")
	})
}

// keeps is what an engine keeps for requests: a prefill engine blocks, a decode engine leases of the router.
// 0 also where that cannot be known.
func (f *faulting) keeps(ctx context.Context, name string) float64 {
	if name[0] == 'p' {
		used, _ := f.s.engine(name).usage(ctx)
		return used
	}
	n, _ := f.router.series(ctx, "tandem_leases", fmt.Sprintf("replica=%q", name))
	return n
}

// holdFirstLegs returns when n or more requests have been planned, the victim's among them, which stands
// still.
func (f *faulting) holdFirstLegs(ctx context.Context, n int, victim string) error {
	f.hold(ctx, f.router, "leg 1 in flight", n)
	return f.holdMore(ctx, "leg 1 in flight",
		func() error { return f.hasLeases(ctx, f.router, 1, fmt.Sprintf("replica=%q", victim)) })
}

// holdMore sends one more request after another until they are where they shall be; the router chooses where
// that is.
func (f *faulting) holdMore(ctx context.Context, phase string, there func() error) error {
	err := eventually(ctx, 3*time.Second, there)
	for range 8 {
		if err == nil {
			return nil
		}
		f.launch(ctx, f.router, phase, f.completion(5*blockTokens, 4))
		err = eventually(ctx, time.Second, there)
	}
	return err
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
	f.thaw("d1")
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, 5*time.Second)
	f.thaw("d0")
	stopFlow()
	return errors.Join(f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second))
}

// prefillDies kills p0: after its leg, while the decode engines have still to pull; during its leg; and
// before it, while the router does not know.
func prefillDies(ctx context.Context, f *faulting) error {
	if err := f.holdAllPhases(ctx); err != nil {
		return err
	}
	p0 := f.s.engine("p0")
	if err := p0.kill(); err != nil {
		return err
	}
	f.hold(ctx, f.router, "just before leg 1", 3)
	f.thaw("d0", "d1")
	stopFlow := f.flow(ctx, 1, flowRest)
	err := errors.Join(f.landAll(ctx), f.wantDown(ctx, "p0"))
	stopFlow()
	err = errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second))
	return errors.Join(err, f.s.startEngine(p0))
}

// decodeDies kills d0 mid-stream and before the first byte: its streams, which are greedy, go on elsewhere.
// Then both engines that were killed come back under load.
func decodeDies(ctx context.Context, f *faulting) error {
	before, err := f.router.continued(ctx)
	if err := errors.Join(err, f.holdStreams(ctx, 3, "d0")); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 4, "d0"); err != nil {
		return err
	}
	d0 := f.s.engine("d0")
	if err := d0.kill(); err != nil {
		return err
	}
	f.hold(ctx, f.router, "just before leg 2", 3)
	f.thaw("d1")
	err = errors.Join(f.landAll(ctx), f.wantDown(ctx, "d0"), f.row.wantExact(), f.wantContinued(ctx, before),
		f.s.startEngine(d0))
	if err = errors.Join(err, f.after(ctx, leaseTime+2*time.Second)); err != nil {
		return err
	}
	f.row = &faultRow{fault: "prefill and decode come back under load"}
	f.rows = append(f.rows, f.row)
	return f.comeBack(ctx, 2, "p0", "d0")
}

// wantContinued wants streams to have gone on elsewhere since before, when that many had.
func (f *faulting) wantContinued(ctx context.Context, before float64) error {
	now, err := f.router.continued(ctx)
	if err == nil && now == before {
		err = errors.New("mid-stream: no stream went on elsewhere, so that the fault concerned none")
	}
	f.row.remark("%v streams went on elsewhere", now-before)
	return err
}

// continued is how many streams have gone on at another engine, by the router.
func (r *router) continued(ctx context.Context) (float64, error) {
	return r.series(ctx, "tandem_continued_total", label("outcome", "continued"))
}

// comeBack waits, under load of that many at a time, until the engines, which have been started, are used,
// and their old blocks are forgotten.
func (f *faulting) comeBack(ctx context.Context, workers int, names ...string) error {
	stopFlow := f.flow(ctx, workers, time.Second) // more would take the cores from those that start
	var back []*engine
	for _, name := range names {
		back = append(back, f.s.engine(name))
	}
	err := awaitHealthy(ctx, back)
	for _, name := range names {
		err = errors.Join(err, f.awaitUp(ctx, name))
	}
	if workers > 0 && err == nil {
		err = f.awaitUsed(ctx, back)
	}
	stopFlow()
	return errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second),
		f.wantTruePredictions(ctx))
}

// awaitUsed waits until the engines have answered something.
func (f *faulting) awaitUsed(ctx context.Context, engines []*engine) error {
	return eventually(ctx, 30*time.Second, func() error {
		for _, e := range engines {
			if n, err := e.metric(ctx, "vllm:generation_tokens_total{"); err != nil || n[0] == 0 {
				return errors.Join(err, fmt.Errorf("%s is ready and not used", e.Name))
			}
		}
		return nil
	})
}

// awaitUp waits until the router uses the engine and follows its events.
func (f *faulting) awaitUp(ctx context.Context, name string) error {
	return eventually(ctx, 15*time.Second, func() error {
		up, err := f.router.series(ctx, "tandem_replica_up", fmt.Sprintf("replica=%q", name))
		live, errLive := f.router.series(ctx, "tandem_index_trust", fmt.Sprintf("replica=%q", name), `state="live"`)
		if err := errors.Join(err, errLive); err != nil {
			return err
		}
		if up != 1 || live != 1 {
			return fmt.Errorf("%s answers, and to the router it is up %v, its events live %v", name, up, live)
		}
		return nil
	})
}

// wantDown waits until the router knows that the engine is dead.
func (f *faulting) wantDown(ctx context.Context, name string) error {
	return eventually(ctx, 5*time.Second, func() error {
		up, err := f.router.series(ctx, "tandem_replica_up", fmt.Sprintf("replica=%q", name))
		if err == nil && up != 0 {
			err = fmt.Errorf("%s was killed, and the router calls it usable", name)
		}
		return err
	})
}

// routerDies kills the router with requests in all phases and starts it again at its address. The leases that
// nobody can give back run out while idle engines are restarted.
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
	f.thaw("p0")
	if err := f.prefilled(ctx, "p0"); err != nil {
		return err
	}
	if err := stop([]*process{f.router.process}, 0); err != nil {
		return err
	}
	f.thaw("p1", "d0", "d1")
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

// restartIdle restarts p1 and d1 while nothing is in flight, and wants the others' leases of the dead router
// to run out meanwhile.
func (f *faulting) restartIdle(ctx context.Context, died time.Time) error {
	p1, d1 := f.s.engine("p1"), f.s.engine("d1")
	if err := errors.Join(p1.kill(), d1.kill(), f.s.startEngine(p1), f.s.startEngine(d1)); err != nil {
		return err
	}
	if err := f.awaitBooks(ctx, f.living(ctx), time.Until(died.Add(leaseTime+2*time.Second)), died); err != nil {
		return err
	}
	f.row = &faultRow{fault: "prefill and decode are restarted while idle"}
	f.rows = append(f.rows, f.row)
	return f.comeBack(ctx, 0, "p1", "d1")
}

// allBeyondLease stops a router between the legs, a prefill engine and a decode engine for longer than the
// lease, while the other engines serve. Before them is a router that would wait for longer than that: only
// that it notices who is silent keeps it from reading blocks which are another's by then.
func allBeyondLease(ctx context.Context, f *faulting) error {
	// Else the prefill, and not its answer, would be too old.
	stopped, err := f.serve(ctx, "lease", "timeouts: {prefill: 1m}")
	if err != nil {
		return err
	}
	patient, err := f.serve(ctx, "patient",
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

// longPause stops p1 and d1, with requests in all phases, until all leases have run out and their blocks are
// used by others.
func (f *faulting) longPause(ctx context.Context) error {
	if err := f.holdStreams(ctx, 3, "d1"); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 3, "p1", "d1"); err != nil {
		return err
	}
	f.freeze("p1")
	if err := f.holdFirstLegs(ctx, 4, "p1"); err != nil {
		return err
	}
	f.thaw("d0") // which pulls from p1
	stopFlow := f.flow(ctx, 1, flowRest)
	pause(ctx, leaseTime+2*time.Second)
	err := f.overwrite(ctx, "p0")
	f.thaw("p1", "d1")
	stopFlow()
	return err
}

// overwrite fills the cache of an engine with other prompts, so that blocks which were freed are another's.
func (f *faulting) overwrite(ctx context.Context, name string) error {
	e := f.s.engine(name)
	expired, err := e.metric(ctx, "vllm:nixl_num_kv_expired_reqs_total{")
	if err != nil {
		return err
	}
	if expired[0] == 0 {
		return fmt.Errorf("no lease on %s has run out, so that nothing was tried", name)
	}
	for range 5 {
		q := f.completion(29*blockTokens, 1)
		if t := tell(ctx, e.url(), q, func() {}); t.status != 200 {
			return fmt.Errorf("%s, asked plainly: %+v", name, t)
		}
	}
	return nil
}

// flow sends requests one after another, workers at a time and each with a rest after it, until stop is
// called, which returns when all have landed.
func (f *faulting) flow(ctx context.Context, workers int, rest time.Duration) (stop func()) {
	end := make(chan struct{})
	var all sync.WaitGroup
	landed := make([][]*flight, workers)
	for w := range workers {
		g := newGenerator(f.s.seed + 8000 + uint64(100*len(f.rows)+10*len(f.flying)+w))
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				case <-ctx.Done():
					return
				default:
				}
				one := launch(ctx, f.router.front, flowing, faultRequest(g, i))
				landed[w] = append(landed[w], one)
				one.land()
				select {
				case <-end:
				case <-time.After(rest):
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(end)
		all.Wait()
		f.flying = append(f.flying, slices.Concat(landed...)...)
	})
}

// pause lets time pass where time itself is what is tried.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

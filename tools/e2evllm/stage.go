package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Engines start in one to two minutes on an idle machine. On a busy machine their imports alone may take
// four, which is no error while they work. startLimit ends waits that would never end, and stillLimit ends
// processes that do nothing.
const (
	startLimit = 40 * time.Minute
	stillLimit = 3 * time.Minute
)

// fleet is a set of engines that acts play with.
type fleet struct {
	name    string
	engines func() []*engine
}

// pools are two prefill and two decode engines with small caches, and a reference that splits nothing.
var pools = &fleet{"pools", func() []*engine {
	return []*engine{
		{Name: "p0", Role: producer, Blocks: prefillBlocks, Flags: inChunks},
		{Name: "p1", Role: producer, Blocks: prefillBlocks, Flags: inChunks},
		{Name: "d0", Role: consumer, Blocks: decodeBlocks, Flags: atOnce},
		{Name: "d1", Role: consumer, Blocks: decodeBlocks, Flags: atOnce},
		{Name: "ref", Blocks: 512, Flags: atOnce},
	}
}}

// stage is everything that one run has started.
type stage struct {
	options
	tandem    string
	work      string
	env       environment
	fleet     *fleet // of the engines that stand, nil for none
	engines   []*engine
	processes []*process // the newest last
	routers   int        // that were started
	borrowed  bool       // the engines belong to another run and stay
	memory    memory     // of prompts sent to the routers
	net       *network   // of engines that are apart
}

// want starts the engines of f and waits until all are healthy. For the current fleet it restarts only the
// engines that have ended.
func (s *stage) want(ctx context.Context, f *fleet) error {
	if s.fleet == f {
		return s.mend(ctx)
	}
	if s.borrowed {
		return fmt.Errorf("the engines of %s are not the fleet %s", s.attach, f.name)
	}
	if err := s.dismiss(); err != nil {
		return err
	}
	say("engines: starting %s", f.name)
	s.fleet, s.engines = f, f.engines()
	if !s.simulate {
		err := errors.Join(s.env.furnish(ctx, s.engines), equip(ctx, s.env, s.engines),
			form(ctx, s.env, s.engines))
		if err != nil {
			return err
		}
	}
	if err := s.separate(); err != nil {
		s.fleet, s.engines = nil, nil
		return err
	}
	if err := s.startCache(ctx); err != nil {
		return err
	}
	for _, e := range s.engines {
		if err := s.startEngine(e); err != nil {
			return err
		}
	}
	return awaitHealthy(ctx, s.engines)
}

// separate makes a network for the engines that need one.
func (s *stage) separate() (err error) {
	var names []string
	for _, e := range s.engines {
		if e.Apart {
			names = append(names, e.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if s.net, err = newNetwork(names); err != nil {
		return err
	}
	for _, e := range s.engines {
		if e.Apart {
			e.Space, e.Address = s.net.space(e.Name), s.net.Hosts[e.Name]
		}
	}
	return nil
}

// startGap is the least time between the starts of two engines. Engines tell their start to the hundredth of
// a second. A router takes two engines with one start for one process (decision 0057): if one is distrusted,
// the router does not use the cache of the other one either.
const startGap = 20 * time.Millisecond

// startEngine starts e, for the first time or again, and does not wait for it.
func (s *stage) startEngine(e *engine) error {
	time.Sleep(startGap)
	if s.simulate {
		e.simulator = s.tandem
	} else if e.env.dir == "" {
		e.env = s.env.of(e.Version)
	}
	if e.work == "" {
		e.work = s.work
	}
	if err := e.start(); err != nil {
		return err
	}
	s.processes = append(s.processes, e.process)
	return s.note()
}

// restart starts e again at its old address and waits until it answers.
func (s *stage) restart(ctx context.Context, e *engine) error {
	if err := e.kill(); err != nil {
		return err
	}
	if err := s.startEngine(e); err != nil {
		return err
	}
	return awaitHealthy(ctx, []*engine{e})
}

// mend thaws the engines, and restarts those that have ended.
func (s *stage) mend(ctx context.Context) error {
	for _, e := range s.engines {
		e.unfreeze()
		if how := e.dead(); how != "" {
			say("engines: %s ended (%s) and is started again", e.Name, how)
			if err := errors.Join(e.kill(), s.startEngine(e)); err != nil {
				return err
			}
		}
	}
	return awaitHealthy(ctx, s.engines)
}

// dismiss stops the current engines.
func (s *stage) dismiss() error {
	var all []*process
	for _, e := range s.engines {
		if e.process != nil {
			all = append(all, e.process)
		}
	}
	if store := s.cacheServer(); store != nil {
		all = append(all, store)
	}
	s.fleet, s.engines = nil, nil
	err := errors.Join(stop(all, 20*time.Second), s.net.remove())
	s.net = nil
	return err
}

// engine is the engine with this name, which must exist.
func (s *stage) engine(name string) *engine {
	for _, e := range s.engines {
		if e.Name == name {
			return e
		}
	}
	panic("no engine has the name " + name)
}

// reference is the engine that splits nothing. In a fleet without one, the first engine computes the
// reference answers.
func (s *stage) reference() *engine {
	if i := slices.IndexFunc(s.engines, func(e *engine) bool { return e.Name == "ref" }); i >= 0 {
		return s.engines[i]
	}
	return s.engines[0]
}

// leave ends every process and removes every file of the run. Logs are kept if -keep asks for them.
func (s *stage) leave(failed bool) error {
	processes := s.processes
	if s.borrowed {
		lent := map[*process]bool{}
		for _, e := range s.engines {
			lent[e.process] = true
		}
		processes = nil
		for _, p := range s.processes {
			if !lent[p] {
				processes = append(processes, p)
			}
		}
	}
	say("ending %d processes", len(processes))
	err := stop(processes, 20*time.Second)
	if !s.borrowed {
		err = errors.Join(err, s.net.remove())
	}
	if failed && s.keep != "" {
		logs, _ := filepath.Glob(filepath.Join(s.work, "*.log"))
		for _, l := range logs {
			err = errors.Join(err, copyFile(l, filepath.Join(s.keep, filepath.Base(l))))
		}
	}
	return errors.Join(err, os.RemoveAll(s.work))
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// standing is the file in which a run with -stay and the runs that attach to it describe the engines.
type standing struct {
	Fleet   string
	Work    string
	Engines []*engine
	Net     *network
}

// note writes the addresses of the engines for other runs, if there is a file.
func (s *stage) note() error {
	file := s.stay + s.attach
	if file == "" {
		return nil
	}
	work := s.work
	if s.borrowed {
		work = s.engines[0].work // the other run's folder, which stays
	}
	b, err := json.MarshalIndent(standing{s.fleet.name, work, s.engines, s.net}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// borrow takes the engines that a run with -stay has started.
func (s *stage) borrow() error {
	b, err := os.ReadFile(s.attach)
	if err != nil {
		return fmt.Errorf("-attach: %w; a run with -stay writes it", err)
	}
	var there standing
	if err := json.Unmarshal(b, &there); err != nil {
		return fmt.Errorf("-attach: %s: %w", s.attach, err)
	}
	f, err := fleetNamed(there.Fleet)
	if err != nil {
		return err
	}
	for _, e := range there.Engines {
		e.env, e.work = s.env.of(e.Version), there.Work
		e.process = adoptProcess(e.Name, e.Log, e.PID)
	}
	s.fleet, s.borrowed = f, true
	s.engines, s.net = there.Engines, there.Net
	return nil
}

// stand starts a fleet for other runs and keeps it until the run is interrupted. By then other runs may have
// restarted some of the engines.
func (s *stage) stand(ctx context.Context, f *fleet) error {
	if err := s.want(ctx, f); err != nil {
		return err
	}
	say("engines: %s are ready for runs with -attach %s; an interrupt ends them", f.name, s.stay)
	<-ctx.Done()
	b, err := os.ReadFile(s.stay)
	var there standing
	if err = errors.Join(err, json.Unmarshal(b, &there)); err != nil {
		return err
	}
	for i, e := range there.Engines {
		if e.PID != s.engines[i].PID {
			s.processes = append(s.processes, adoptProcess(e.Name, e.Log, e.PID))
		}
	}
	return os.Remove(s.stay)
}

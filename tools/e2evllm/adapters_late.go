package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// changeAdapter loads the late adapter on an engine, or unloads it.
func (e *engine) changeAdapter(ctx context.Context, change string) (int, error) {
	adapter := map[string]string{"lora_name": adapterLate, "lora_path": e.env.adapter(adapterLate)}
	status, text, err := submit(ctx, e.url()+"/v1/"+change+"_lora_adapter", adapter)
	if err == nil && status != http.StatusOK && status != http.StatusNotFound {
		err = fmt.Errorf("%s cannot %s an adapter: %d: %.300s", e.Name, change, status, text)
	}
	return status, err
}

func (s *stage) load(ctx context.Context, names ...string) error {
	for _, name := range names {
		status, err := s.engine(name).changeAdapter(ctx, "load")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf(
				"%s has no /v1/load_lora_adapter: it was started without VLLM_ALLOW_RUNTIME_LORA_UPDATING", name,
			)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unloadLate unloads the late adapter from every engine.
func (s *stage) unloadLate(ctx context.Context) error {
	var errs []error
	for _, e := range s.engines {
		_, err := e.changeAdapter(ctx, "unload")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// seenWithin is the time in which a router must notice new models: it asks every five seconds.
const seenWithin = 12 * time.Second

// serves waits until the router reports that the replicas serve the model.
func (r *router) serves(ctx context.Context, model string, replicas ...string) error {
	return eventually(ctx, seenWithin, func() error {
		seen, err := readReplicas(ctx, r)
		if err != nil {
			return err
		}
		for _, name := range replicas {
			if !slices.Contains(seen[name].Facts.Models, model) {
				return fmt.Errorf("%s has served %s for %v, but the router knows only %v",
					name, model, seenWithin, seen[name].Facts.Models)
			}
		}
		return nil
	})
}

// loaded loads an adapter while all engines run. Before that, the router does not know the model. Afterwards,
// the answers are the adapter's, and its blocks are separate.
//
// Long: a scene in its order.
func (s *stage) loaded(ctx context.Context, r *router) error {
	g := newPrompts()
	body := map[string]any{
		"model": adapterLate, "prompt": g.ids(3*blockTokens + 5), "max_tokens": 12, "temperature": 0,
	}
	if a, err := ask(ctx, r.front, completions, body); err != nil || a.status != http.StatusNotFound {
		return fmt.Errorf("an adapter that no engine has: %d (%w), want 404", a.status, err)
	}
	if err := s.load(ctx, "p0", "d0"); err != nil {
		return err
	}
	if err := r.serves(ctx, adapterLate, append(s.engine("p0").rankNames(), "d0")...); err != nil {
		return err
	}
	plain := maps.Clone(body)
	plain["model"] = modelName
	if _, _, err := tellOne(ctx, r, completions, plain); err != nil { // the adapter must not find these blocks
		return err
	}
	base, err := ask(ctx, s.reference().url(), completions, plain)
	if err != nil {
		return err
	}
	alone := maps.Clone(body)
	alone["cache_salt"] = fmt.Sprint("alone", time.Now().UnixNano())
	want, err := ask(ctx, s.engine("p0").url(), completions, alone)
	if err != nil {
		return err
	}
	errs := []error{nil}
	if want.status != http.StatusOK || base.text() == want.text() {
		errs = append(errs,
			fmt.Errorf("the adapter answers %d %q, the base model %q", want.status, want.text(), base.text()))
	}
	for i, n := range []int{0, 3 * blockTokens} {
		a, rec, err := tellOne(ctx, r, completions, body)
		if err != nil {
			return err
		}
		if d := difference(a, want); d != "" || rec.Captured != n || rec.Delivered != n || rec.Mode != "split" {
			errs = append(errs, fmt.Errorf(
				"request %d of the adapter (%s): %d tokens predicted and %d found in the cache, want %d; %s", i+1,
				rec.Mode, rec.Captured, rec.Delivered, n, d,
			))
		}
	}
	return errors.Join(errs...)
}

// lateReplicas uses a decode pool in which one replica has the adapter. Requests for the adapter go only to
// that replica, also after another replica has loaded it and the first one has unloaded it. Nothing is split,
// because the other replica is the reference. Both replicas have equal speeds: an adapter's first requests
// are slow, and the router would learn to prefer the other replica.
func (s *stage) lateReplicas(ctx context.Context) error {
	d0, ref := s.engine("d0"), s.reference()
	file := filepath.Join(s.work, "tandem-late.yaml")
	text := fmt.Sprintf("pools: {decode: {replicas: [{name: d0, url: %q}, {name: ref, url: %q}]}}\nlocal: "+
		"always\ndecisions: {ring: 20000}\nresponse: {headers: true}\n%s\n", d0.url(), ref.url(), evenSpeeds)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	return errors.Join(s.hold(ctx, r, "an adapter on one replica",
		func(ctx context.Context, r *router) error {
			if err := r.serves(ctx, adapterLate, "d0"); err != nil {
				return err
			}
			errs := []error{s.decodedBy(ctx, r, adapterLate, "d0"), s.decodedBy(ctx, r, modelName, "d0", "ref")}
			if err := s.load(ctx, "ref"); err != nil {
				return err
			}
			errs = append(errs, r.serves(ctx, adapterLate, "ref"), s.decodedBy(ctx, r, adapterLate, "d0", "ref"))
			if _, err := d0.changeAdapter(ctx, "unload"); err != nil {
				return err
			}
			return errors.Join(append(errs, s.decodedBy(ctx, r, adapterLate, "ref"))...)
		}), r.end())
}

// decodedBy sends eight requests for the model at once. Only these replicas must answer, and each must answer
// some.
func (s *stage) decodedBy(ctx context.Context, r *router, model string, replicas ...string) error {
	g := newPrompts()
	answers, errs := make(chan string), make(chan error)
	const n = 8
	for range n {
		body := map[string]any{
			"model": model, "prompt": g.ids(2 * blockTokens), "max_tokens": 12, "temperature": 0, "ignore_eos": true,
		}
		go func() {
			_, rec, err := tellOne(ctx, r, completions, body)
			if err != nil {
				errs <- err
				return
			}
			answers <- rec.Decode
		}()
	}
	by, failed := map[string]int{}, []error(nil)
	for range n {
		select {
		case at := <-answers:
			by[at]++
		case err := <-errs:
			failed = append(failed, err)
		}
	}
	if used := slices.Sorted(maps.Keys(by)); len(failed) == 0 && !slices.Equal(used, replicas) {
		failed = append(failed,
			fmt.Errorf("requests for %s were answered by %v, want %s", model, by, strings.Join(replicas, " and ")))
	}
	return errors.Join(failed...)
}

//go:build linux && kubernetes

package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// revision is a version of the pods: it has its own tokenizer, and optionally a label.
type revision struct {
	number int
	label  string
}

// pod is an engine in a pod. The test acts as its kubelet.
type pod struct {
	*process
	name, role string
	gone       chan error // has one value when the pod has been removed from the API server
}

// rollouts is a router in front of pods. The test replaces the pods, instead of the controllers of
// Kubernetes.
type rollouts struct {
	*fleet
	c       *apiCluster
	pools   map[string][]*pod
	alone   map[int]*fleet // for each revision an engine that gives the reference answers
	started int            // number of pods started so far
	leaving []*pod
	preStop time.Duration // between the deletion of a pod and the signal to its engine
	// How long a pod has been Ready before a Deployment deletes another one: its minReadySeconds.
	minReady time.Duration
	marks    []time.Time // when pods became ready or began to be deleted
}

const (
	preStop = 3 * time.Second
	loading = time.Second      // from the creation of a pod to its engine
	grace   = 20 * time.Second // from the deletion of a pod to the end of its engine, at most
)

// newRollouts starts a cluster, a router with its manifests, and n pods for each pool.
func newRollouts(t *testing.T, n int, of revision) *rollouts {
	t.Helper()
	c := newCluster(t)
	c.apply("../../deploy/kubernetes/tandem.yaml")
	f := &fleet{t: t, client: newClient(), asker: newClient(), known: map[string]*reply{}}
	binary(t)
	f.mount(fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nresponse: {headers: true}\n"+
		"decisions: {ring: 16384}\nconnector: {lease: 5s, margin: 2s}\n%s\n", c.discovery()))
	f.serve()
	t.Cleanup(f.client.CloseIdleConnections)
	t.Cleanup(f.asker.CloseIdleConnections)
	r := &rollouts{
		fleet: f, c: c, pools: map[string][]*pod{}, alone: map[int]*fleet{},
	}
	r.scale("prefill", n, of)
	r.scale("decode", n, of)
	r.serving(2 * n)
	return r
}

// flags are the flags of every engine of a revision. The length of the model's name decides the tokenizer.
func (v revision) flags() []string { return []string{"--tokenizer", strings.Repeat("x", v.number)} }

// create makes a pod and runs its engine, which becomes ready later. The name "" means a new name.
func (r *rollouts) create(role, name string, of revision) *pod {
	r.t.Helper()
	r.started++
	ip := fmt.Sprintf("127.30.0.%d", r.started)
	p := &pod{name: cmp.Or(name, fmt.Sprintf("%s-%d", role, r.started)), role: role, gone: make(chan error, 1)}
	r.c.create(p.name, role, of.label, "8200")
	pause(loading)
	p.process = start(r.t, p.name, append([]string{
		"sim", "--role", role, "--listen", ip + ":8200", "--events", "tcp://" + ip + ":0", "--side-host", ip,
		"--speed", "70b", "--lease", "5s",
	}, of.flags()...)...)
	p.line("http://")
	r.c.status(p.name, ip, "True")
	r.marks = append(r.marks, time.Now())
	return p
}

// remove deletes a pod. As in a cluster, its engine gets SIGTERM after the preStop hook, and SIGKILL later.
func (r *rollouts) remove(p *pod) {
	r.t.Helper()
	r.c.remove(p.name)
	r.marks = append(r.marks, time.Now())
	r.leaving = append(r.leaving, p)
	go func() {
		pause(r.preStop)
		p.signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(grace):
			p.kill()
		}
		var err error
		path := podPath + p.name + "?gracePeriodSeconds=0"
		if code, _, said := r.c.ask(http.MethodDelete, path, "", ""); code != http.StatusOK {
			err = fmt.Errorf("the deletion of %s does not end: %d %s", p.name, code, said)
		}
		p.gone <- err
	}()
}

// end waits until a pod has ended.
func (r *rollouts) end(p *pod) {
	r.t.Helper()
	if err := <-p.gone; err != nil {
		r.t.Fatal(err)
	}
	r.leaving = slices.DeleteFunc(r.leaving, func(x *pod) bool { return x == p })
}

// scale gives a pool n pods: it makes new pods, or deletes the oldest ones.
func (r *rollouts) scale(role string, n int, of revision) {
	r.t.Helper()
	for len(r.pools[role]) > n {
		r.remove(r.pools[role][0])
		r.pools[role] = r.pools[role][1:]
	}
	for len(r.pools[role]) < n {
		r.pools[role] = append(r.pools[role], r.create(role, "", of))
	}
}

// surge replaces pods as a Deployment with one pod of surge does: when a new pod is Ready, an old one is
// deleted. It replaces one pod of each pool at a time.
func (r *rollouts) surge(to revision, roles ...string) {
	r.t.Helper()
	for range len(r.pools[roles[0]]) {
		for _, role := range roles {
			r.pools[role] = append(r.pools[role], r.create(role, "", to))
		}
		pause(r.minReady)
		for _, role := range roles {
			r.remove(r.pools[role][0])
			r.pools[role] = r.pools[role][1:]
		}
	}
}

// byOrdinal replaces pods as a LeaderWorkerSet does: it begins with the highest ordinal, deletes the pod,
// and then makes a pod of the same name.
func (r *rollouts) byOrdinal(to revision, roles ...string) {
	r.t.Helper()
	for _, role := range roles {
		for i, old := range slices.Backward(r.pools[role]) {
			r.remove(old)
			r.end(old)
			r.pools[role][i] = r.create(role, old.name, to)
		}
	}
}

// serving waits until the router has n replicas and all are ready.
func (r *rollouts) serving(n int) {
	r.t.Helper()
	r.names(n)
}

// rightOf returns the answer of a single engine of a revision.
func (r *rollouts) rightOf(of revision, q question) *reply {
	r.t.Helper()
	f := r.alone[of.number]
	if f == nil {
		f = &fleet{t: r.t, asker: r.asker, known: map[string]*reply{}}
		f.reference = newEngine(r.t, "reference", "", append(of.flags(), "--zero-latency", "--blocks", "32768")...)
		r.alone[of.number] = f
	}
	return f.right(q)
}

// Both pools are updated and scaled down under ten requests a second. No request fails, and each answer is
// the answer of one engine of one revision, although the new revision has another tokenizer.
// TANDEM_ROLLOUTS names a file for the plot of docs/kubernetes.md.
//
// Long: one row for each rollout.
func TestRolloutsOfKubernetes(t *testing.T) {
	r := newRollouts(t, 3, revision{1, ""})
	was := revision{1, ""}
	r.load(5*time.Second, func() {}) // warms the caches
	var all []*outcome
	for i, step := range []struct {
		name  string
		label bool // the pods have the label of the revision
		pods  int  // of each pool, when it begins
		stop  time.Duration
		act   func(to revision)
	}{
		{"Deployment, prefill then decode; no label", false, 3, preStop, func(to revision) {
			r.surge(to, "prefill")
			r.surge(to, "decode")
		}},
		{"LeaderWorkerSet, decode then prefill", true, 3, preStop, func(to revision) {
			r.byOrdinal(to, "decode", "prefill")
		}},
		{"Both pools at once", true, 3, preStop, func(to revision) { r.surge(to, "prefill", "decode") }},
		{"Both pools at once, no preStop hook", true, 3, 0, func(to revision) {
			r.surge(to, "prefill", "decode")
		}},
		{"Both pools at once, one pod each", true, 1, preStop, func(to revision) {
			r.minReady = 2 * time.Second
			r.surge(to, "prefill", "decode")
		}},
	} {
		r.preStop = step.stop
		for _, role := range []string{"prefill", "decode"} {
			if n := len(r.pools[role]); n > step.pods {
				name := fmt.Sprintf("The %s pool from %d to %d", role, n, step.pods)
				all = append(all, r.rollout(name, was, was, func() { r.scale(role, step.pods, was) }))
			}
		}
		is := revision{number: i + 2}
		if step.label {
			is.label = fmt.Sprintf("r%d", is.number)
		}
		all = append(all, r.rollout(step.name, was, is, func() { step.act(is) }))
		was = is
	}
	var table strings.Builder
	for _, o := range all {
		fmt.Fprintln(&table, o)
	}
	t.Log("\n" + table.String())
	if file := os.Getenv("TANDEM_ROLLOUTS"); file != "" {
		r.must(os.WriteFile(file, []byte(plot(all[:3])), 0o600))
	}
}

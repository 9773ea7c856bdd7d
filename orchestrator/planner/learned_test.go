package planner

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// at gives each replica its own address.
func at(r *replica.Replica) { r.URL = "http://" + r.Host + ":8000" }

// taught is a fleet with measured replicas and links, whose speeds differ from the profile.
func taught(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(1, 1, at)
	r := f.request(1, 16_000)
	r.LocalOK, r.MaxTokens = false, 0
	r.PrefillKeys, r.DecodeKeys = nil, nil
	for range 30 {
		b := f.plan(t, r)
		b.PrefillLease.Done(0, 5*time.Second, f.now)
		if _, err := f.pl.Rebind(b, r, f.now); err != nil {
			t.Fatal(err)
		}
		f.pass(500 * time.Millisecond)
		f.pl.FirstToken(b, f.now)
		f.pass(time.Second)
		b.Finish(30, 6*time.Second, 9*time.Second, f.now)
		f.says(f.decode, "d1", 0, 0, 0)
		f.says(f.prefill, "p1", 0, 0, 0)
	}
	return f
}

// kept is the learned state of a process, as the next process reads it.
func kept(t *testing.T, f *fleet) *Learned {
	t.Helper()
	data, err := json.Marshal(f.pl.Learned(f.now))
	if err != nil {
		t.Fatal(err)
	}
	l := new(Learned)
	if err := json.Unmarshal(data, l); err != nil {
		t.Fatal(err)
	}
	return l
}

// The next process begins with the measured speeds of replicas and links, and with the observed lengths of
// answers.
func TestWhatWasLearnedIsTakenOver(t *testing.T) {
	before, after := taught(t), newFleet(1, 1, at)
	reads := estimate.Speeds{Reads: []estimate.ReadState{{PerToken: 1e-4, At: before.now}}}
	before.prefill.RestoreSpeeds("p1", reads, before.now)
	before.decode.RestoreSpeeds("d1", reads, before.now)
	l := kept(t, before)
	if len(l.Speeds) != 2 || len(l.Links) != 1 {
		t.Fatalf("kept are speeds %+v and links %+v", l.Speeds, l.Links)
	}
	if after.pl.RestoreLengths(l, before.now) == 0 || after.pl.RestoreReplicas(l, before.now) != 3 {
		t.Fatalf("left are speeds %+v and links %+v", l.Speeds, l.Links)
	}
	if len(l.Speeds)+len(l.Links) != 0 {
		t.Errorf("what was taken is still waiting: %+v", l)
	}
	was, is := before.prefill.Status(before.now)[0], after.prefill.Status(before.now)[0]
	if was, is := was.Speed.Prefill(16_000, 0), is.Speed.Prefill(16_000, 0); is < was*0.8 || is > was*1.2 {
		t.Errorf("a prefill takes %.2f s, and %.2f s in the process before", is, was)
	}
	decode := after.decode.Status(before.now)[0]
	for pool, got := range map[string]float64{"prefill": is.Reads["cpu"], "decode": decode.Reads["cpu"]} {
		if got < 0.9e-4 || got > 1.1e-4 {
			t.Errorf("%s: a token is read back in %.2g s, and in 0.0001 s in the process before", pool, got)
		}
	}
	expected := before.decode.Status(before.now)[0].Output
	if out := after.decode.Status(before.now)[0].Output; out < expected*9/10 || out > expected*11/10 {
		t.Errorf("%d tokens are expected, and %d in the process before", out, expected)
	}
	links, measured := after.pl.Learned(before.now).Links, before.pl.Learned(before.now).Links[0].PerByte
	if len(links) != 1 || links[0].PerByte < measured*0.9 || links[0].PerByte > measured*1.1 {
		t.Errorf("the links are %+v, and a byte took %g s in the process before", links, measured)
	}
	if n := after.pl.RestoreReplicas(kept(t, before), before.now); n != 0 {
		t.Errorf("%d figures took the place of others", n)
	}
}

// A replaced engine begins with nothing. The saved measurements wait for their own engine.
func TestAnotherEngineBeginsWithNothing(t *testing.T) {
	before := taught(t)
	for name, change := range map[string]func(r *replica.Replica){
		"another address":       func(r *replica.Replica) { r.URL += "1" },
		"another rank":          func(r *replica.Replica) { r.Rank = 1 },
		"another model":         func(r *replica.Replica) { r.Facts.Root = "org/other" },
		"another release":       func(r *replica.Replica) { r.Facts.Version = "0.33.0" },
		"another configuration": func(r *replica.Replica) { r.Facts.Fingerprint = "vllm-0.32.0-1234" },
		"nothing told yet":      func(r *replica.Replica) { r.Facts.Root, r.Facts.Version = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			after := newFleet(1, 1, func(r *replica.Replica) {
				at(r)
				change(r)
			})
			l := kept(t, before)
			if n := after.pl.RestoreReplicas(l, before.now); n != 0 || len(l.Speeds) != 2 || len(l.Links) != 1 {
				t.Errorf("%d figures were taken, and left are %+v and %+v", n, l.Speeds, l.Links)
			}
			if got := kept(t, after); len(got.Speeds)+len(got.Links) != 0 {
				t.Errorf("it has learned %+v and %+v", got.Speeds, got.Links)
			}
		})
	}
}

// Very old measurements count for almost nothing.
func TestOldFiguresAreForgotten(t *testing.T) {
	before, after := taught(t), newFleet(1, 1, at)
	was := after.prefill.Status(after.now)[0].Speed.Prefill(16_000, 0)
	later := before.now.Add(5 * 24 * time.Hour)
	l := kept(t, before)
	if n := after.pl.RestoreLengths(l, later); n != 0 {
		t.Errorf("lengths of %d groups were taken", n)
	}
	after.pl.RestoreReplicas(l, later)
	if is := after.prefill.Status(later)[0].Speed.Prefill(16_000, 0); is < was*0.99 || is > was*1.01 {
		t.Errorf("a prefill takes %.3f s, want the %.3f s of a replica of which nothing is known", is, was)
	}
}

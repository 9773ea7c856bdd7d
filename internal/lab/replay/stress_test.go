package replay

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStressNames(t *testing.T) {
	if s, err := ParseStress("hot,surge"); err != nil || s != (Stress{Hot: true, Surge: true}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := ParseStress(""); err != nil || s != (Stress{}) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := ParseStress("hot,cold"); err == nil || !strings.Contains(err.Error(), `"cold"`) ||
		!strings.Contains(err.Error(), "flood") {
		t.Error(err)
	}
}

// In a surge one minute has the session starts of two minutes. No two starts change their order, and no
// start is lost.
func TestSurge(t *testing.T) {
	for _, span := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
		from := surgeAt
		if span > 0 {
			from = max(0, span-surgeFor) / 2
		}
		inside, last := 0, time.Duration(-1)
		for at := time.Duration(0); at < 20*time.Minute; at += time.Second {
			got := Stress{Surge: true}.time(at, span)
			if got < last || got > at || at-got > surgeFor {
				t.Fatalf("span %v: %v becomes %v after %v", span, at, got, last)
			}
			last = got
			if got >= from && got < from+surgeFor {
				inside++
			}
			if (Stress{}).time(at, span) != at {
				t.Fatal("times change without a surge")
			}
		}
		if inside != 120 {
			t.Errorf("span %v: %d starts in the minute of the surge, want 120", span, inside)
		}
	}
}

// With hot prompts, prompts that were new before are found in the cache. With a flood, nothing is found
// although much was cached before.
func TestStressChangesWhatIsCached(t *testing.T) {
	p := Play{Trace: file(t, 200), Cluster: "2P3D", Profile: "8b", Policies: []string{"tandem"}, Seed: 3}
	hits := map[Stress]float64{}
	for _, s := range []Stress{{}, {Hot: true}, {Flood: true}} {
		p.Stress = s
		out, err := p.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if out[0].Requests != 200 {
			t.Errorf("%+v: %d requests", s, out[0].Requests)
		}
		hits[s] = out[0].Hit
	}
	usual := hits[Stress{}]
	hot := hits[Stress{Hot: true}]
	flood := hits[Stress{Flood: true}]
	if hot < usual+0.2 || flood != 0 {
		t.Errorf("cached: usual %.2f, hot %.2f, flood %.2f", usual, hot, flood)
	}
}

// Sessions start at the given rate, at the times of the clients in the file, independent of the times in
// the trace.
func TestArrivals(t *testing.T) {
	rates := filepath.Join(t.TempDir(), "rates.csv")
	text := "client,window_start_s,rate_rps,cv,family,p1,p2\n1,0,0.5,1,Gamma,1,2\n2,0,0.3,3,Gamma,0.1,2\n" +
		"1,600,9,1,Gamma,1,2\n"
	if err := os.WriteFile(rates, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Play{
		Trace: file(t, 2000), Cluster: "2P3D", Profile: "8b", Policies: []string{"round-robin"}, Seed: 1,
		Arrivals: rates, Rate: 2, For: 10 * time.Minute,
	}
	out, err := p.Run(t.Context(), nil)
	if err != nil || math.Abs(float64(out[0].Requests)-1200) > 200 {
		t.Errorf("2 a second for ten minutes gave %d requests, %v", out[0].Requests, err)
	}
	p.Scale = 0.5
	if out, err = p.Run(t.Context(), nil); err != nil || math.Abs(float64(out[0].Requests)-600) > 100 {
		t.Errorf("half of that rate gave %d requests, %v", out[0].Requests, err)
	}
	p.Arrivals = filepath.Join(t.TempDir(), "none")
	if _, err := p.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "arrivals: ") {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(rates,
		[]byte("client,window_start_s,rate_rps,cv,family,p1,p2\n1,600,9,1,Gamma,1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Arrivals = rates
	if _, err := p.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no client sends") {
		t.Errorf("without a rate: %v", err)
	}
}

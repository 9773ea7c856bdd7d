package replay

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core/kernels"
)

// folder makes recorded runs whose kernels take simple times. The simulation itself made their results,
// with a tuning that the validation does not know.
type folder struct {
	fstest.MapFS
	t *testing.T
}

func zipped(t *testing.T, text string) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

func newFolder(t *testing.T) *folder {
	f := &folder{fstest.MapFS{}, t}
	for _, r := range recorded {
		f.tables("profile_"+r.profile+"_", strings.Contains(r.model, "A3B"))
		ranks, tensor := 1, 1
		if strings.Contains(r.model, "A3B") {
			ranks = 2
		}
		if strings.Contains(r.profile, "tp2") {
			tensor = 2
		}
		f.MapFS["run_"+r.name+
			"_meta.json"] = &fstest.MapFile{Data: fmt.Appendf(nil, `{"engine_kwargs":{"tensor_parallel_size":%d,`+
			`"data_parallel_size":%d,"max_num_seqs":16,"max_num_batched_tokens":512},`+
			`"started_at":"2026-01-01T00:00:00Z","finished_at":"2026-01-01T00:00:20Z",`+
			`"kv_cache":{"num_gpu_blocks":400,"block_size":16}}`, tensor, ranks)}
		f.workload(r.workload + ".jsonl.gz")
	}
	return f
}

func (f *folder) tables(prefix string, experts bool) {
	var attention strings.Builder
	attention.WriteString("a,b,c,d,t\n")
	var dense strings.Builder
	dense.WriteString("layer,tokens,t\n")
	var head strings.Builder
	head.WriteString("layer,sequences,t\n")
	var moe strings.Builder
	moe.WriteString("tokens,experts,t\n")
	for _, u := range []int{0, 16, 512} {
		for _, k := range []int{0, 16, 1024} {
			for _, n := range []int{0, 1, 16} {
				for _, d := range []int{16, 1024} {
					if u+n > 0 && (n > 0 || d == 16) && (u > 0 || k == 0) {
						fmt.Fprintf(&attention, "%d,%d,%d,%d,%g\n",
							u, k, n, d, 5+float64(u*(k+u/2))/3e3+float64(n*d)/200)
					}
				}
			}
		}
	}
	for _, n := range []int{1, 512} {
		fmt.Fprintf(&dense, "qkv_proj,%d,%g\nlayernorm,%d,1\nembedding,%d,2\n", n, 200+float64(n)*0.5, n, n)
		fmt.Fprintf(&head, "lm_head,%d,%g\n", n, 300+float64(n))
		for _, e := range []int{8, 64} {
			moe.WriteString(fmt.Sprintf("%d,%d,%g\n", n, e, float64(e)*3+float64(n)/10))
		}
	}
	f.MapFS[prefix+"attention.csv.gz"], f.MapFS[prefix+"dense.csv.gz"] = zipped(f.t,
		attention.String()), zipped(f.t, dense.String())
	f.MapFS[prefix+"per_sequence.csv.gz"] = zipped(f.t, head.String())
	if experts {
		f.MapFS[prefix+"moe.csv.gz"] = zipped(f.t, moe.String())
	}
}

const sampleRequests = 60

func (f *folder) workload(name string) {
	var text strings.Builder
	for i := range sampleRequests {
		in, out := 100+i*37%400, 40+i*13%60
		ids, _ := json.Marshal(make([]int, (in+out)/16))
		fmt.Fprintf(&text, `{"in":%d,"out":%d,"arrival_ns":%d,"hash_ids":%s}`+"\n", in, out, i*1e8, ids)
	}
	f.MapFS[name] = zipped(f.t, text.String())
}

// results writes the simulation's results with this tuning as the results of a run.
func (f *folder) results(run string, tune kernels.Tuning, edit func(i int, r *result)) {
	f.t.Helper()
	all, err := ReadRecordings(f)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range all {
		if r.Name != run {
			continue
		}
		ts, err := r.simulate(tune, true)
		if err != nil {
			f.t.Fatal(err)
		}
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		for i, x := range ts {
			at := r.Requests[i].At.Seconds()
			line := result{
				ID: fmt.Sprintf("bench-%d", i), Input: len(r.Requests[i].Prompt), Output: x.Output,
				Arrival: new(1e9 + at), Queued: new(50 + at),
			}
			line.First, line.Last = new(50+at+x.First.Seconds()), new(50+at+x.Last.Seconds())
			if edit != nil {
				edit(i, &line)
			}
			if err := enc.Encode(line); err != nil {
				f.t.Fatal(err)
			}
		}
		f.MapFS["run_"+run+"_requests.jsonl.gz"] = zipped(f.t, text.String())
	}
}

var hidden = []kernels.Tuning{{Scale: 1.2, Host: 0.003}, {Scale: 1.1, Host: 0.002, Token: 2e-5}}

func TestCalibrationFindsWhatIsHidden(t *testing.T) {
	f := newFolder(t)
	for i, tune := range hidden {
		f.results(recorded[i].name, tune, nil)
	}
	vs, err := Validate(f, false, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(vs); err != nil {
		t.Errorf("%v: %+v", err, vs[0].Tuning)
	}
	for _, v := range vs[:2] {
		if v.Calibrated != sampleRequests/3 || v.Worst > 0.03 || v.Untuned.worst() < 0.1 {
			t.Errorf("%s: calibrated on %d, worst error %v, without tuning %v",
				v.Run, v.Calibrated, v.Worst, v.Untuned.worst())
		}
	}
	for _, v := range vs[2:] {
		if v.Measured != nil || math.Abs(v.Makespan-20) > 14 {
			t.Errorf("%s: %+v", v.Run, v)
		}
	}
	var out bytes.Buffer
	if err := WritePredictions(&out, vs); err != nil || strings.Count(out.String(), "\n") != 2*sampleRequests {
		t.Errorf("%d predictions, %v", strings.Count(out.String(), "\n"), err)
	}
	if err := Print(&out, vs); err != nil {
		t.Error(err)
	}
}

// A formula that is fitted to tables of simple times is nearly as good as the tables, and the tables are
// then unused.
func TestAFormulaInThePlaceOfTables(t *testing.T) {
	f := newFolder(t)
	for i, tune := range hidden {
		f.results(recorded[i].name, tune, nil)
	}
	vs, err := Validate(f, true, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := Validate(f, false, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vs[:2] {
		if v.Worst > 0.15 {
			t.Errorf("%s: the worst error is %v", v.Run, v.Worst)
		}
		if v.Simulated == tables[i].Simulated {
			t.Errorf("%s: the tables were played", v.Run)
		}
	}
}

// An engine that differs from the simulated one after its first third is detected: the check can fail.
func TestCheckFails(t *testing.T) {
	f := newFolder(t)
	for i, tune := range hidden {
		f.results(recorded[i].name, tune, func(n int, r *result) {
			if i == 0 && n > sampleRequests/2 {
				*r.Last += 0.1 * (*r.Last - *r.First)
			}
		})
	}
	vs, err := Validate(f, false, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(vs); err == nil || !strings.Contains(err.Error(), recorded[0].name) ||
		strings.Contains(err.Error(), recorded[1].name) {
		t.Errorf("check says %v", err)
	}
	if err := Check(nil); err == nil {
		t.Error("an empty list counts as validated")
	}
}

func TestMistakesInRecordings(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(f *folder)
		want string
	}{
		{
			"no table", func(f *folder) { delete(f.MapFS, "profile_RTX4090_Llama-3.1-8B_tp1_dense.csv.gz") },
			"profile_RTX4090_Llama-3.1-8B_tp1_dense.csv.gz",
		},
		{"no number", func(f *folder) {
			f.MapFS["profile_RTX4090_Llama-3.1-8B_tp1_dense.csv.gz"] = zipped(f.t, "a,b,c\nqkv_proj,x,1\n")
		}, "dense:2: column 2"},
		{"unknown layer", func(f *folder) {
			f.MapFS["profile_RTX4090_Llama-3.1-8B_tp1_dense.csv.gz"] = zipped(f.t, "a,b,c\nconv,1,1\n")
		}, `unknown layer "conv"`},
		{
			"settings",
			func(f *folder) { f.MapFS["run_RTX4090-Llama-3.1-8B_meta.json"] = &fstest.MapFile{Data: []byte("{}")} },
			"not complete",
		},
		{"other workload", func(f *folder) {
			f.results(recorded[0].name, hidden[0], func(i int, r *result) { r.Input += i })
		}, "bench-1 has"},
		{"missing time", func(f *folder) {
			f.results(recorded[0].name, hidden[0], func(i int, r *result) { r.Last = nil })
		}, "requests.jsonl.gz:1: a time is missing"},
	} {
		f := newFolder(t)
		tt.do(f)
		if _, err := ReadRecordings(f); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := ReadRecordings(fstest.MapFS{}); err == nil ||
		!strings.Contains(err.Error(), fs.ErrNotExist.Error()) {
		t.Errorf("empty folder: %v", err)
	}
}

// A request goes to the rank with the lowest 4*waiting+running, from the last report and the requests sent
// since then.
func TestRanksAreBalanced(t *testing.T) {
	f := newFolder(t)
	all, err := ReadRecordings(f)
	if err != nil {
		t.Fatal(err)
	}
	s := &rerun{rec: all[1], seats: make([]seats, 2)}
	s.seats[0].running = 3
	for i, want := range []int{1, 0, 1, 0} {
		if got := s.choose(time.Millisecond); got != want {
			t.Errorf("request %d goes to rank %d, want %d", i, got, want)
		}
	}
}

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/doctor"
)

// simulated starts a tandem sim process and returns its URL.
func simulated(t *testing.T, args ...string) string {
	t.Helper()
	p := start(t, "sim", append([]string{"sim", "--zero-latency", "--events", "tcp://*:0"}, args...)...)
	url, _, _ := strings.Cut(p.line("http://"), " ")
	return url
}

// runDoctorBinary runs tandem doctor to its end.
func runDoctorBinary(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), binary(t), append([]string{"doctor"}, args...)...)
	c.Stdout = &out
	c.Stderr = &errs
	c.WaitDelay = time.Second
	err := c.Run()
	if status, ok := errors.AsType[*exec.ExitError](err); ok {
		return status.ExitCode(), out.String(), errs.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errs.String()
}

func fleetFile(t *testing.T, prefill, decode string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	text := fmt.Sprintf(
		"pools:\n  prefill: {replicas: [{name: p0, url: %q}]}\n  decode: {replicas: [{name: d0, url: %q}]}\n",
		prefill, decode,
	)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An engine that is named twice is examined once, and its findings are reported once.
func TestDoctorTakesAnEngineOnce(t *testing.T) {
	o := doctorOptions{quiet: true, Options: doctor.Options{Timeout: time.Second}}
	if err := o.read([]string{"http://d0:8000", "http://p0:8000", "http://d0:8000/"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.URLs, " "); got != "http://d0:8000 http://p0:8000" {
		t.Errorf("it examines %s", got)
	}
}

// A healthy fleet: exit code 0, the report on standard output, progress on standard error.
func TestDoctorOfAHealthyFleet(t *testing.T) {
	t.Parallel()
	file := fleetFile(t, simulated(t, "--data-parallel-size", "2"), simulated(t))
	code, out, errs := runDoctorBinary(t, "--config", file)
	if code != 0 || !strings.Contains(out, " ok, 0 warnings, 0 failed, 0 not checked") ||
		!strings.Contains(out, "prefill p0/dp1\n") || strings.Contains(out, "it keeps prefixes") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if !strings.Contains(errs, "asking 2 engines, and following their events\nsending test prompts, ") ||
		strings.Contains(errs, "d0") {
		t.Errorf("progress: %s", errs)
	}
	code, out, errs = runDoctorBinary(t, "-v", "--config", file)
	if code != 0 || !strings.Contains(out, "  ok        it keeps prefixes: ") ||
		!strings.Contains(errs, "decode d0: sending a test prompt") {
		t.Errorf("with -v: exit %d\n%s\n%s", code, out, errs)
	}
}

// A fleet with faults: exit code 1, and the report as JSON states the reasons.
func TestDoctorOfASickFleet(t *testing.T) {
	t.Parallel()
	file := fleetFile(t, simulated(t, "--no-enable-prefix-caching"),
		simulated(t, "--tokenizer", "other", "--null-publisher"))
	code, out, errs := runDoctorBinary(t, "--json", "--quiet", "--config", file)
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 || strings.Contains(errs, "asking") {
		t.Fatalf("exit %d, %v\n%s\n%s", code, err, out, errs)
	}
	var failed []string
	for _, f := range r.Findings {
		if f.Status == doctor.Failed {
			failed = append(failed, f.Subject+" "+f.Check)
		}
	}
	if got, want := strings.Join(failed, ", "), "prefill p0 prefix-caching-off, decode d0 publisher-null, "+
		"fleet tokenizer-drift"; got != want || r.Count.Failed != 3 {
		t.Errorf("failed: %s, want %s", got, want)
	}
}

// Engines by URL. An engine that does not answer is a failed check, not a usage error.
func TestDoctorByURL(t *testing.T) {
	t.Parallel()
	if code, out, _ := runDoctorBinary(t, "--passive", simulated(t)+"/"); code != 0 ||
		!strings.Contains(out, "this examination sends none") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out, errs := runDoctorBinary(t, "127.0.0.1:1"); code != 1 ||
		!strings.Contains(out, "[engine-unreachable]") || !strings.Contains(errs, "checks failed") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
}

func TestDoctorWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"--config", "x.yaml", "http://y"},
		{"--no-such-flag"},
		{"http://x", "--jsno"},
		{"--timeout", "0s", "http://x"},
	} {
		if code, out, _ := runDoctorBinary(t, args...); code != 2 || out != "" {
			t.Errorf("%q: exit %d, %q", args, code, out)
		}
	}
	if code, _, errs := runDoctorBinary(t, "--config", filepath.Join(t.TempDir(), "none.yaml")); code != 1 ||
		!strings.Contains(errs, "none.yaml") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// Engines that are named by pool are examined as a fleet: a missing connector fails. For URLs without a
// pool the report says that no handoff was tried, and how to name the pools.
func TestDoctorTakesPoolsByFlags(t *testing.T) {
	prefill, decode := simulated(t, "--no-connector"), simulated(t)
	code, out, _ := runDoctorBinary(t, "--quiet", "--prefill", prefill, "--decode", decode)
	if code != 1 || !strings.Contains(out, "FAILED") {
		t.Errorf("exit code %d, want 1 and a failure:\n%s", code, out)
	}
	code, out, _ = runDoctorBinary(t, "--quiet", prefill, decode)
	said := strings.Join(strings.Fields(out), " ") // the report wraps its lines
	if code != 0 || !strings.Contains(said, "name the engines with --prefill URL and --decode URL") {
		t.Errorf("bare URLs, exit code %d:\n%s", code, out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{prefill, "--decode", decode}, "of which pool is " + prefill},
		{[]string{"--prefill", prefill}, "add at least one --decode URL"},
		{[]string{"--prefill", "http://p0:8000/v1", "--decode", decode}, "continues behind the port"},
		{[]string{"--config", "x.yaml", "--decode", decode}, "not both"},
	} {
		if code, _, errs := runDoctorBinary(t, c.args...); code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("doctor %v: exit code %d, want %q in\n%s", c.args, code, c.want, errs)
		}
	}
}

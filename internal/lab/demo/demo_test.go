package demo

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

func TestDemoEndsByItself(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), Options{Requests: 8, Speed: 20, Out: &out}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		header, "   live page http://127.0.0.1:", "8 requests, 0 wrong", "leases left      0", "TTFT ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if lines := strings.Count(out.String(), " > d") + strings.Count(out.String(), "prefills itself"); lines < 8 {
		t.Errorf("%d lines of requests, want 8:\n%s", lines, out.String())
	}
}

func TestDemoFailsWhenAnAnswerIsWrong(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), Options{Requests: 3, Speed: 20, Out: &out, otherModel: true})
	if !errors.Is(err, ErrWrong) || strings.Count(out.String(), "WRONG") != 3 {
		t.Errorf("err %v, want %v, and three lines that say so:\n%s", err, ErrWrong, out.String())
	}
}

func TestDemoEndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var out bytes.Buffer
	if err := Run(ctx, Options{Speed: 20, Out: &out}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "leases left      0") {
		t.Errorf("no summary, or leases are left:\n%s", out.String())
	}
}

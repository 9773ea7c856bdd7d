package demo

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-router/tandem/internal/why"
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

// asker asks the router for the record of the first printed request, like tandem why.
type asker struct {
	bytes.Buffer
	ctx   context.Context
	asked string
	got   *why.Record
	err   error
}

var (
	livePage  = regexp.MustCompile(`live page (http://\S+)/`)
	requestID = regexp.MustCompile(`(?m)^(c\d\S*) .* > d\d`)
)

func (a *asker) Write(b []byte) (int, error) {
	n, err := a.Buffer.Write(b)
	admin, id := livePage.FindStringSubmatch(a.String()), requestID.FindSubmatch(b)
	if a.asked == "" && admin != nil && id != nil {
		a.asked = string(id[1])
		a.got, a.err = why.At(a.ctx, admin[1], "", a.asked)
	}
	return n, err
}

func TestWhyKnowsThePrintedRequest(t *testing.T) {
	out := &asker{ctx: t.Context()}
	if err := Run(t.Context(), Options{Requests: 4, Speed: 20, Out: out}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if out.err != nil || out.got == nil {
		t.Fatalf("the record of %q: %v\n%s", out.asked, out.err, out.String())
	}
	if !strings.Contains(out.String(), out.got.Reason) {
		t.Errorf("the record says %q, which no line does:\n%s", out.got.Reason, out.String())
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// hostileResult is the result of one case.
type hostileResult struct {
	hostileCase
	status  int
	outcome string
	why     string   // the error, "" for the two good outcomes
	ended   []string // engines that had ended by the time of the answer; simultaneous cases share them
	took    time.Duration
}

// Outcomes. The first two are right.
const (
	rightText  = "right text"
	refusal    = "refused"
	notRight   = "wrong text" // or a status other than one engine's
	notClear   = "not clear"  // a refusal without a reason, or a missing refusal
	serverSide = "5xx"
	noAnswer   = "no answer"
	leaked     = "leaked"
)

// hostileActs plays all hostile cases against the built binary. After each group the engines must live,
// answer correctly, and hold no block.
func hostileActs(ctx context.Context, s *stage) error {
	file, err := s.configure("hostile", "local: never",
		"timeouts: {queue: 1m, read_header: 5s, read_body: 10s}",
		fmt.Sprintf("limits: {body_bytes: %d}", hostileBodyLimit))
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	stolen, err := s.steal(ctx)
	if err != nil {
		return err
	}
	errs := []error{s.hostileGroup(ctx, r, "params", paramsCases(stolen))}
	errs = append(errs, s.giveBack(ctx, stolen))
	cases := jsonCases()
	for _, group := range []string{"bodies", "types"} {
		errs = append(errs, s.hostileGroup(ctx, r, group,
			slices.DeleteFunc(slices.Clone(cases), func(c hostileCase) bool { return c.group != group })))
	}
	errs = append(errs, s.hostileGroup(ctx, r, "http", httpCases()))
	errs = append(errs, s.untouched(func() error {
		admin, err := s.adminOnly(ctx)
		return errors.Join(err, s.hostileGroup(ctx, r, "admin", adminCases(admin)))
	}))
	return errors.Join(append(errs, r.end())...)
}

// hostileCases are all hostile cases. stolen may be nil.
func hostileCases(stolen map[string]any) []hostileCase {
	return slices.Concat(paramsCases(stolen), jsonCases(), httpCases(), adminCases(adminPaths))
}

// hostileGroup plays cases against Tandem, prints the results and then sends a valid request.
func (s *stage) hostileGroup(ctx context.Context, r *router, name string, cases []hostileCase) error {
	begun := time.Now()
	results, err := s.hostileRun(ctx, r.front, cases, 6)
	if err != nil {
		return err
	}
	printHostile(os.Stdout, name, results, time.Since(begun))
	errs := []error{judgeHostile(name, results), s.living(ctx)}
	for i := range 8 {
		q := newGenerator(uint64(len(cases) + i)).next()
		if res := s.compare(ctx, r, q); res.diff != "" {
			errs = append(errs,
				fmt.Errorf("after %s a valid request (%s) gets a wrong answer: %s", name, res.kind, res.diff))
		}
	}
	return errors.Join(errs...)
}

// living requires every engine to answer and to hold no block.
func (s *stage) living(ctx context.Context) error {
	var errs []error
	for _, e := range s.engines {
		if how := e.dead(); how != "" {
			errs = append(errs, fmt.Errorf("the engine %s ended: %s", e.Name, how))
		} else if _, err := get(ctx, e.url()+"/health"); err != nil {
			errs = append(errs, fmt.Errorf("the engine %s: %w", e.Name, err))
		}
	}
	return errors.Join(errs...)
}

// hostileRun plays cases against a front with this many workers, and compares with the reference engine. Only
// an interrupt is an error. Ended engines are not restarted, so a front that protects none should get one
// case at a time.
func (s *stage) hostileRun(
	ctx context.Context, front string, cases []hostileCase, workers int,
) ([]hostileResult, error) {
	secrets, err := s.secrets(ctx)
	if err != nil {
		return nil, err
	}
	results := make([]hostileResult, len(cases))
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				results[i] = s.playHostile(ctx, front, cases[i], secrets)
			}
		})
	}
	for i := range cases {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	all.Wait()
	return results, ctx.Err()
}

func (s *stage) playHostile(
	ctx context.Context, front string, c hostileCase, secrets []*regexp.Regexp,
) hostileResult {
	begun := time.Now()
	h := exchange(ctx, front, c.raw, c.half)
	res := hostileResult{hostileCase: c, status: h.status, took: time.Since(begun)}
	var want *heard
	if c.clean != "" {
		w := exchange(ctx, s.reference().url(), posted(c.path, c.clean), false)
		want = &w
	}
	res.outcome, res.why = judgeHeard(c, h, want, secrets)
	for _, e := range s.engines {
		if e.process != nil && e.dead() != "" {
			res.ended = append(res.ended, e.Name)
		}
	}
	return res
}

// judgeHeard judges h against want, one engine's answer to the clean body. want is nil if there is no such
// answer.
func judgeHeard(c hostileCase, h heard, want *heard, secrets []*regexp.Regexp) (outcome, why string) {
	if secret := hostileLeak(h, c.raw, secrets); secret != "" {
		return leaked, fmt.Sprintf("%q is in the answer: %.300q", secret, h.all)
	}
	if h.err != nil {
		return noAnswer, h.err.Error()
	}
	if want != nil && want.err != nil {
		return noAnswer, "of the reference: " + want.err.Error()
	}
	switch {
	case h.status >= 500 && !ofHTTP(h):
		return serverSide, fmt.Sprintf("%d %.300s", h.status, h.body)
	case h.status >= 400 && want != nil && want.status != h.status && !c.loose:
		return notRight, fmt.Sprintf("status %d, of one engine %d: %.200s", h.status, want.status, h.body)
	case h.status >= 400:
		return judgeRefusal(c, h, want)
	case want == nil:
		return notClear, fmt.Sprintf("status %d and not refused: %.300s", h.status, h.body)
	case want.status != h.status:
		return notRight, fmt.Sprintf("status %d, of one engine %d: %.200s", h.status, want.status, want.body)
	}
	got, err := heart(h.body)
	right, errRight := heart(want.body)
	switch {
	case errors.Join(err, errRight) != nil:
		return notRight, errors.Join(err, errRight).Error()
	case got != right:
		return notRight, fmt.Sprintf("%s\n      alone %s", got, right)
	}
	return rightText, ""
}

// judgeRefusal requires a reason in the API's form. It must name the field if one engine names it too.
func judgeRefusal(c hostileCase, h heard, want *heard) (outcome, why string) {
	said, err := complaint(h)
	switch {
	case err != nil:
		return notClear, err.Error()
	case c.names != "" && want != nil && bytes.Contains(want.body, []byte(c.names)) &&
		!strings.Contains(said, c.names):
		return notClear, fmt.Sprintf("the refusal does not name %s: %s; one engine's does: %.200s",
			c.names, said, want.body)
	}
	return refusal, ""
}

// printHostile writes one line per outcome, and every case with a bad outcome.
func printHostile(w io.Writer, name string, results []hostileResult, took time.Duration) {
	counts, slowest := map[string]int{}, hostileResult{}
	for _, r := range results {
		counts[r.outcome]++
		if r.took > slowest.took {
			slowest = r
		}
	}
	fmt.Fprintf(w, "\nhostile %s: %d requests in %.0f s, the slowest %.1f s (%s)\n\n",
		name, len(results), took.Seconds(), slowest.took.Seconds(), slowest.name)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, outcome := range []string{rightText, refusal, notRight, notClear, serverSide, noAnswer, leaked} {
		fmt.Fprintf(t, "  %s\t%d\n", outcome, counts[outcome])
	}
	_ = t.Flush()
	for _, r := range results {
		if r.why != "" {
			fmt.Fprintf(w, "  %s: %s: %s: %s\n", r.outcome, r.path, r.name, r.why)
		}
	}
	fmt.Fprintln(w)
}

// judgeHostile returns the failed checks.
func judgeHostile(name string, results []hostileResult) error {
	bad, good := 0, 0
	for _, r := range results {
		if r.why != "" {
			bad++
		} else if r.outcome == rightText {
			good++
		}
	}
	switch {
	case len(results) == 0:
		return fmt.Errorf("%s: nothing was asked", name)
	case bad > 0:
		return fmt.Errorf("%s: %d of %d hostile requests got a wrong answer",
			name, bad, len(results))
	case good == 0 && name != "admin":
		return fmt.Errorf("%s: no request was answered with a text, so nothing was compared", name)
	}
	return nil
}

// untouched requires that only requests of Tandem reach an engine while f runs, and that no engine is told to
// empty its cache.
func (s *stage) untouched(f func() error) error {
	var logs []int64
	for _, e := range s.engines {
		info, err := os.Stat(e.Log)
		if err != nil {
			return err
		}
		logs = append(logs, info.Size())
	}
	errs := []error{f()}
	for i, e := range s.engines {
		log, err := os.ReadFile(e.Log)
		if err != nil {
			return err
		}
		errs = append(errs, e.disturbed(log[min(logs[i], int64(len(log))):], e == s.reference()))
	}
	return errors.Join(errs...)
}

// disturbed looks in an engine's log for two things: paths that it should not have been asked for, and
// attempts to empty its cache, successful or not (vllm/v1/core/block_pool.py).
func (e *engine) disturbed(log []byte, reference bool) error {
	var errs []error
	for _, path := range strangers(log) {
		if !reference {
			errs = append(errs, fmt.Errorf("the engine %s was asked for %s", e.Name, path))
		}
	}
	if bytes.Contains(log, []byte("reset prefix cache")) {
		errs = append(errs, fmt.Errorf("the engine %s was told to empty its cache", e.Name))
	}
	return errors.Join(errs...)
}

var accessLine = regexp.MustCompile(`"[A-Z]+ (\S+) HTTP/1\.[01]" \d+`)

// strangers are the paths in a server's log that Tandem and the suite have no reason to ask for.
func strangers(log []byte) []string {
	var found []string
	for _, m := range accessLine.FindAllSubmatch(log, -1) {
		path, _, _ := strings.Cut(string(m[1]), "?")
		if !served(path) &&
			!slices.Contains([]string{"/metrics", "/version", "/kv_event_sources", "/load"}, path) &&
			!slices.Contains(found, string(m[1])) {
			found = append(found, string(m[1]))
		}
	}
	return found
}

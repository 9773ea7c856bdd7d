package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/tools/peer"
)

// rival is another front before the same engines.
type rival struct {
	name  string
	start func(context.Context, *stage) (*router, error)
}

// rivals are compared one after the other. Each splits all requests that it can split.
var rivals = []rival{
	{"tandem", func(ctx context.Context, s *stage) (*router, error) {
		file, err := s.configure("rival", "local: never",
			"timeouts: {queue: 1m, read_header: 5s, read_body: 10s}",
			fmt.Sprintf("limits: {body_bytes: %d}", hostileBodyLimit))
		if err != nil {
			return nil, err
		}
		return s.serve(ctx, file)
	}},
	{"vllm-router " + peer.Version, startPeer},
}

// startPeer starts vllm-router and returns when it answers.
func startPeer(ctx context.Context, s *stage) (*router, error) {
	installed, err := peer.Install(ctx, s.cache, say)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2, 1)
	if err != nil {
		return nil, err
	}
	listen, metrics := "127.0.0.1:"+strconv.Itoa(ports[0]), "127.0.0.1:"+strconv.Itoa(ports[1])
	var pools [2][]string
	for _, e := range s.engines {
		if at, ok := map[string]int{producer: 0, consumer: 1}[e.Role]; ok {
			pools[at] = append(pools[at], e.url())
		}
	}
	program, args, err := installed.Command(listen, metrics, pools[0], pools[1])
	if err != nil {
		return nil, err
	}
	s.routers++
	p, err := startProcess(fmt.Sprintf("vllm-router-%d", s.routers), s.work, nil, program, args...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	r := &router{process: p, front: "http://" + listen}
	err = eventually(ctx, time.Minute, func() error {
		_, err := get(ctx, r.front+"/health")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("vllm-router does not answer: %w\n%s", err, p.logTail(20))
	}
	return r, nil
}

// peerAnswers sends the requests of the act answers through each rival, one at a time, and prints the
// results. It returns an error only if it cannot print them.
func peerAnswers(ctx context.Context, s *stage) error {
	return s.besides(ctx, "answers", func(front func() string, leak leakOf) ([]trial, error) {
		g := newGenerator(s.seed)
		var trials []trial
		for range s.requests / 2 {
			q := g.next()
			trials = append(trials, trial{
				kind: q.kind, play: func(ctx context.Context) verdictOf {
					return s.tryAnswer(ctx, front(), q,
						leak)
				},
			})
		}
		return trials, nil
	})
}

// peerHostile does the same with the requests of the hostile act. It sends at most ten for each of -requests;
// by default these are all.
func peerHostile(ctx context.Context, s *stage) error {
	return s.besides(ctx, "hostile", func(front func() string, leak leakOf) ([]trial, error) {
		stolen, err := s.steal(ctx)
		if err != nil {
			return nil, err
		}
		var trials []trial
		for _, c := range some(hostileCases(stolen), 10*s.requests) {
			kind := c.group
			if kind == "params" {
				kind += " " + c.path
			}
			trials = append(trials, trial{
				kind: kind, name: c.path + ": " + c.name,
				play: func(ctx context.Context) verdictOf { return s.tryHostile(ctx, front(), c, leak) },
			})
		}
		return trials, nil
	})
}

// some returns all cases if there are no more than limit. Otherwise it returns limit cases, the same ones
// each time, in their order.
func some(cases []hostileCase, limit int) []hostileCase {
	chosen := rand.New(rand.NewPCG(1, uint64(len(cases)))).Perm(len(cases))[:min(limit, len(cases))]
	slices.Sort(chosen)
	few := make([]hostileCase, 0, len(chosen))
	for _, i := range chosen {
		few = append(few, cases[i])
	}
	return few
}

// leakOf is the first secret in an answer, or "".
type leakOf func(h heard, asked []byte) string

// besides plays trials against each rival and prints a table, even if it must end early. Functions give
// access to a rival, because it may be restarted in between.
func (s *stage) besides(
	ctx context.Context, what string, trials func(front func() string, leak leakOf) ([]trial, error),
) error {
	var tallies []*tally
	defer func() { printTallies(os.Stdout, what, tallies) }()
	for _, c := range rivals {
		t := &tally{name: c.name}
		tallies = append(tallies, t)
		if err := s.against(ctx, c, t, trials); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (s *stage) against(
	ctx context.Context, c rival, t *tally, trials func(front func() string, leak leakOf) ([]trial, error),
) error {
	var r *router
	var now leakOf
	begin := func() error {
		if r != nil {
			if err := errors.Join(r.end(), s.mend(ctx)); err != nil {
				return err
			}
		}
		secrets, err := s.secrets(ctx)
		if err != nil {
			return err
		}
		now = func(h heard, asked []byte) string { return hostileLeak(h, asked, secrets) }
		r, err = c.start(ctx, s)
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	all, err := trials(func() string { return r.front },
		func(h heard, asked []byte) string { return now(h, asked) })
	if err != nil {
		return err
	}
	say("%s: %d requests, one at a time", c.name, len(all))
	if err := t.run(ctx, all, s.lost, begin); err != nil {
		return err
	}
	if err := errors.Join(r.end(), s.mend(ctx)); err != nil {
		return err
	}
	t.idle, err = s.awaitIdle(ctx, time.Minute) // longer than any lease
	return err
}

// lost are the engines that have ended, and those that report bad health, which are killed. With patience it
// watches for seconds: an engine that dies of a request answers the request before its server ends.
func (s *stage) lost(ctx context.Context, patience bool) (names []string) {
	limit := time.Duration(0)
	if patience {
		limit = 3 * time.Second
	}
	_ = eventually(ctx, limit, func() error {
		names = nil
		for _, e := range s.engines {
			if e.dead() != "" {
				names = append(names, e.Name)
			} else if _, err := get(ctx, e.url()+"/health"); err != nil && ctx.Err() == nil {
				_ = e.kill()
				names = append(names, e.Name)
			}
		}
		if len(names) == 0 {
			return errors.New("none")
		}
		return nil
	})
	return names
}

// tryAnswer sends a request through a front and to the reference, and compares.
func (s *stage) tryAnswer(ctx context.Context, front string, q request, leak leakOf) verdictOf {
	raw := posted(q.path, asJSON(q.body))
	h := exchange(ctx, front, raw, false)
	alone := maps.Clone(q.body)
	alone["cache_salt"] = fmt.Sprintf("alone-%d", time.Now().UnixNano())
	want, err := ask(ctx, s.reference().url(), q.path, alone)
	if err != nil {
		return verdictOf{outcome: noAnswer, why: "of the reference: " + err.Error()}
	}
	v := verdictOf{leaked: leak(h, raw) != "", patience: h.status == http.StatusOK}
	v.outcome, v.why = judgeAnswer(q, masked(h, raw, leak), want)
	return v
}

// judgeAnswer judges the answer h to q. want is the right answer.
func judgeAnswer(q request, h heard, want answer) (outcome, why string) {
	switch {
	case h.err != nil:
		return noAnswer, h.err.Error()
	case h.status >= 500:
		return serverSide, fmt.Sprintf("%d %.200s", h.status, h.body)
	case h.status != http.StatusOK && want.status == http.StatusOK:
		return refusal, fmt.Sprintf("%d %.200s", h.status, h.body)
	case h.status != want.status:
		return notRight, fmt.Sprintf("status %d, of one engine %d", h.status, want.status)
	}
	got := answer{status: h.status}
	if err := got.read(q.path, q.body["stream"] == true,
		&http.Response{Body: io.NopCloser(bytes.NewReader(h.body)), StatusCode: h.status}); err != nil {
		return notRight, err.Error()
	}
	if d := difference(got, want); d != "" {
		return notRight, d
	}
	return rightText, ""
}

// tryHostile plays one hostile case against a front.
func (s *stage) tryHostile(ctx context.Context, front string, c hostileCase, leak leakOf) verdictOf {
	h := exchange(ctx, front, c.raw, c.half)
	var want *heard
	if c.clean != "" {
		w := exchange(ctx, s.reference().url(), posted(c.path, c.clean), false)
		want = &w
	}
	v := verdictOf{leaked: leak(h, c.raw) != "", patience: h.status == http.StatusOK}
	v.open = c.group == "admin" && h.status >= 200 && h.status < 400
	h = masked(h, c.raw, leak)
	if want != nil && want.status == http.StatusOK && h.status >= 400 && h.status < 500 {
		v.outcome, v.why = judgeRefusal(c, h, want) // a front may refuse what an engine accepts
	} else {
		v.outcome, v.why = judgeHeard(c, h, want, nil)
	}
	return v
}

// peerID is a part that vllm-router puts into the ids of answers: the addresses of both legs.
var peerID = regexp.MustCompile(`___prefill_addr_\S*?___decode_addr_[^_"]*_`)

// masked is h without its leaks, so that the rest can be judged separately.
func masked(h heard, asked []byte, leak leakOf) heard {
	h.all, h.body = peerID.ReplaceAll(h.all, nil), peerID.ReplaceAll(h.body, nil)
	for found := leak(h, asked); found != "" && !strings.Contains(found, `"`); found = leak(h, asked) {
		h.all, h.body = bytes.ReplaceAll(h.all, []byte(found),
			[]byte("(masked)")), bytes.ReplaceAll(h.body, []byte(found), []byte("(masked)"))
	}
	return h
}

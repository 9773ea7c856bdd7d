package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ranked are a prefill server of two data-parallel ranks, a decode engine, and one that splits nothing; all of them have adapters.
var ranked = &fleet{"ranked", func() []*engine {
	both := []string{adapterA, adapterB}
	return []*engine{
		{Name: "p0", Role: producer, Blocks: prefillBlocks, Ranks: 2, Adapters: both},
		{Name: "d0", Role: consumer, Blocks: 2 * decodeBlocks, Adapters: both},
		{Name: "ref", Blocks: 512, Adapters: both},
	}
}}

// ranks plays with the prefill server of two ranks, each of which is a replica of its own to Tandem, with its blocks, its events, its load and its capacity.
func ranks(ctx context.Context, s *stage) error {
	if err := consult(ctx, s); err != nil {
		return err
	}
	file, err := s.configure("ranks", "local: never", "timeouts: {queue: 2m}", evenSpeed)
	if err != nil {
		return err
	}
	r, err := s.serveHearing(ctx, file)
	if err != nil {
		return err
	}
	return errors.Join(
		s.hold(ctx, r, "sessions return to their rank", s.sessions),
		s.hold(ctx, r, "a client names a rank", s.namedRanks),
		s.hold(ctx, r, "the load of one rank", s.loadOfARank),
		s.rankPhase(ctx, r, phase{name: "two ranks, one at a time", requests: 40, workers: 1, seed: s.seed + 5000, predicted: 0.99, kinds: rankKinds}),
		s.rankPhase(ctx, r, phase{name: "two ranks, eight at a time", requests: 80, workers: 8, seed: s.seed + 6000, predicted: 0.95, kinds: rankKinds}),
		s.hold(ctx, r, "what is known of each rank", s.ranksKnown),
		r.end(),
		s.audit(ctx, 9),
	)
}

// evenSpeed is a setting by which all prefill replicas are equally fast. Else the router measures each, and where other work shares two cores a rank that
// stood still for seconds is left alone for a while, which is right and would hide what is asked here.
const evenSpeed = "scoring: {speed: {prefill: 2000}}"

// serveHearing starts a router and returns when it hears the events of every replica: before that it does not say what it does not know.
func (s *stage) serveHearing(ctx context.Context, file string) (*router, error) {
	r, err := s.serve(ctx, file)
	if err != nil {
		return nil, err
	}
	return r, eventually(ctx, 10*time.Second, func() error {
		seen, err := readReplicas(ctx, r)
		for name, one := range seen {
			if !strings.HasPrefix(one.Events, "live") {
				err = errors.Join(err, fmt.Errorf("the events of %s are %s", name, one.Events))
			}
		}
		return err
	})
}

// rankKinds are those of the suite that engines with adapters survive: on CPUs vLLM 0.32.0 ends itself at the log-probabilities of a prompt beside another
// request (lora/punica_wrapper/punica_cpu.py, add_lora_logits: the indices are those of the sampled tokens).
var rankKinds = []func(*generator) request{
	(*generator).exactLength, (*generator).chatTurns, (*generator).sharedIDs, (*generator).messagesTurns, (*generator).responsesTurns, (*generator).batchOfIDs,
	(*generator).salted, (*generator).texts, (*generator).sampled, (*generator).logprobs, (*generator).chatTurns, (*generator).stops, (*generator).sharedIDs,
	(*generator).messagesTurns, (*generator).responsesTurns, (*generator).several, (*generator).messagesSalted, (*generator).toTheLimit, (*generator).tooLong,
}

// hold plays one part of an act and says how long it took.
func (s *stage) hold(ctx context.Context, r *router, what string, part func(context.Context, *router) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	begun := time.Now()
	if err := part(ctx, r); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	say("%s: held, %.1f s", what, time.Since(begun).Seconds())
	return nil
}

// rankNames are the replicas that the ranks of e are to Tandem.
func (e *engine) rankNames() []string {
	if e.Ranks < 2 {
		return []string{e.Name}
	}
	var names []string
	for n := range e.Ranks {
		names = append(names, e.Name+"/dp"+strconv.Itoa(n))
	}
	return names
}

// newPrompts invents what no engine has heard before, also when it stood in another run.
func newPrompts() *generator { return newGenerator(uint64(time.Now().UnixNano())) }

// session is a conversation whose every prompt begins with the one before.
type session struct {
	kind, path string
	body       func(turns []string) map[string]any
	ids        []int    // of a conversation in ids
	turns      []string // of another: what was said
	prefill    string   // which replica the first turn went to
}

// newSessions are n conversations through all doors, with long beginnings that differ.
func newSessions(g *generator, n int) []*session {
	said := func(turns []string) (all []map[string]any) {
		for _, t := range turns {
			all = append(all, message("user", t))
		}
		return all
	}
	forms := []session{
		{kind: "ids", path: completions},
		{kind: "chat", path: chat, body: func(turns []string) map[string]any { return map[string]any{"messages": said(turns), "max_tokens": 8} }},
		{kind: "responses", path: responses, body: func(turns []string) map[string]any {
			return map[string]any{"input": said(turns), "max_output_tokens": 8, "store": false}
		}},
		{kind: "messages", path: messages, body: func(turns []string) map[string]any { return map[string]any{"messages": said(turns), "max_tokens": 8} }},
	}
	var all []*session
	for i := range n {
		one := forms[i%len(forms)]
		one.ids, one.turns = g.ids(10*blockTokens), []string{g.text(100)}
		all = append(all, &one)
	}
	return all
}

// next is the session's request now; afterwards it is one turn longer.
func (c *session) next(g *generator) request {
	q := request{kind: c.kind, path: c.path}
	if c.body != nil {
		q.body = c.body(c.turns)
	} else {
		q.body = map[string]any{"prompt": c.ids, "max_tokens": 8}
	}
	q.body["model"], q.body["temperature"] = modelName, 0
	c.ids, c.turns = slices.Concat(c.ids, g.ids(blockTokens+7)), append(slices.Clone(c.turns), g.text(15))
	return q
}

// sessions begins conversations all at once, so that both ranks get some, and goes on with them one at a time: each has to come back to the rank that holds
// its beginning, and as many tokens as were predicted have to be cached there.
func (s *stage) sessions(ctx context.Context, r *router) error {
	g := newPrompts()
	all := newSessions(g, 8)
	var first []request
	for _, c := range all {
		first = append(first, c.next(g))
	}
	records, err := s.tellAll(ctx, r, first)
	if err != nil {
		return err
	}
	used := map[string]int{}
	for i, c := range all {
		c.prefill = records[i].Prefill
		used[c.prefill]++
	}
	for _, name := range s.engine("p0").rankNames() {
		if used[name] == 0 {
			err = errors.Join(err, fmt.Errorf("%s got none of %d conversations that began at once: %v", name, len(all), used))
		}
	}
	for turn := range 2 {
		for i, c := range all {
			got, errTell := s.tellAll(ctx, r, []request{c.next(g)})
			if errTell != nil {
				return errors.Join(err, errTell)
			}
			err = errors.Join(err, returned(got[0], c.prefill, fmt.Sprintf("turn %d of conversation %d (%s)", turn+2, i, c.kind)))
		}
	}
	return err
}

// returned says how a request did not find its beginning at the replica where that is.
func returned(got record, at, what string) error {
	switch {
	case got.Prefill != at:
		return fmt.Errorf("%s (%s) went to %s, and its beginning is at %s: %s", what, got.ID, got.Prefill, at, got.Reason)
	case got.Captured != got.Delivered || got.Captured < 6*blockTokens:
		return fmt.Errorf("%s was predicted to find %d tokens at %s and found %d", what, got.Captured, at, got.Delivered)
	}
	return nil
}

// tellAll sends the requests at once, compares the answers, and returns the router's records of them in the same order.
func (s *stage) tellAll(ctx context.Context, r *router, requests []request) ([]record, error) {
	results := make([]result, len(requests))
	var all sync.WaitGroup
	for i, q := range requests {
		all.Go(func() { results[i] = s.compare(ctx, r, q) })
	}
	all.Wait()
	var errs []error
	ids := make([]string, len(results))
	for i, res := range results {
		ids[i] = res.id
		if res.diff != "" {
			errs = append(errs, fmt.Errorf("%s (%s): %s", res.id, res.kind, res.diff))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return recordsOf(ctx, r, ids)
}

// recordsOf reads the records of these requests, in their order.
func recordsOf(ctx context.Context, r *router, ids []string) ([]record, error) {
	known, err := readRecords(ctx, r)
	if err != nil {
		return nil, err
	}
	var found []record
	for _, id := range ids {
		i := slices.IndexFunc(known, func(k record) bool { return k.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("the router has no record of %q", id)
		}
		found = append(found, known[i])
	}
	return found, nil
}

// namedRanks sends what clients may write into the header for ranks, through every door: the request goes to the rank that holds its beginning all the
// same. An engine refuses a rank that it has not, which has to be seen too, or this would show nothing.
func (s *stage) namedRanks(ctx context.Context, r *router) error {
	if direct, err := askRank(ctx, s.engine("p0").url(), completions, map[string]any{"model": modelName, "prompt": []int{7}, "max_tokens": 1}, "7"); err != nil || direct.status != http.StatusBadRequest {
		return fmt.Errorf("an engine of two ranks says %d to the rank 7 instead of 400 (%w)", direct.status, err)
	}
	g := newPrompts()
	var errs []error
	for _, c := range newSessions(g, 4) {
		first := c.next(g)
		got, err := s.tellAll(ctx, r, []request{first})
		if err != nil {
			return err
		}
		want, err := ask(ctx, s.reference().url(), first.path, first.body)
		if err != nil {
			return err
		}
		for _, rank := range []string{"0", "1", "2", "7", "-1", "99999999999999999999", "x", "0, 1", ""} {
			first.body["data_parallel_rank"] = 7
			a, err := askRank(ctx, r.front, first.path, first.body, rank)
			if err != nil {
				return fmt.Errorf("the rank %q of a client: %w", rank, err)
			}
			if d := difference(a, want); d != "" {
				errs = append(errs, fmt.Errorf("the rank %q of a client on %s: %s", rank, first.path, d))
				continue
			}
			records, err := recordsOf(ctx, r, []string{a.id})
			if err != nil {
				return err
			}
			errs = append(errs, returned(records[0], got[0].Prefill, fmt.Sprintf("a request to %s for the rank %q", first.path, rank)))
		}
	}
	return errors.Join(errs...)
}

// askRank is ask of a client that names a rank.
func askRank(ctx context.Context, base, path string, body map[string]any, rank string) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(data))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Data-Parallel-Rank", rank)
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{id: resp.Header.Get("X-Request-Id"), mode: resp.Header.Get("X-Tandem-Mode"), status: resp.StatusCode}
	return a, a.read(path, false, resp)
}

// loadOfARank asks rank 1 past the router for a long answer: Tandem has to see blocks in use there, and none at rank 0.
func (s *stage) loadOfARank(ctx context.Context, r *router) error {
	names := s.engine("p0").rankNames()
	ctx, end := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer end()
	asked.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			body := map[string]any{"model": modelName, "prompt": newGenerator(uint64(i)).ids(contextTokens / 2), "max_tokens": contextTokens / 2, "ignore_eos": true}
			_, _ = askRank(ctx, s.engine("p0").url(), completions, body, "1")
		}
	})
	return eventually(ctx, 15*time.Second, func() error {
		seen, err := readReplicas(ctx, r)
		if err != nil {
			return err
		}
		if idle, busy := seen[names[0]].Book.Usage, seen[names[1]].Book.Usage; idle != 0 || busy <= 0 || busy > 1 {
			return fmt.Errorf("%s works and %s does not, but Tandem sees %.3f and %.3f of their blocks in use", names[1], names[0], busy, idle)
		}
		return nil
	})
}

// rankPhase is a phase with a router that serves others too. Of a crowd every rank has to get its share.
func (s *stage) rankPhase(ctx context.Context, r *router, ph phase) error {
	before, err := readRecords(ctx, r)
	if err != nil {
		return err
	}
	begun := time.Now()
	results := s.compareAll(ctx, r, ph)
	took := time.Since(begun)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	idle, errIdle := s.awaitIdle(ctx, 2*time.Second)
	records, err := readRecords(ctx, r)
	if err := errors.Join(errIdle, err); err != nil {
		return err
	}
	records = records[:len(records)-len(before)]
	v := judge(results, records)
	v.print(os.Stdout, ph, took, idle)
	errs := []error{v.verdict(ph.predicted)}
	if ph.workers > 1 {
		errs = append(errs, shared(records, s.engine("p0").rankNames()))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", ph.name, err)
	}
	return nil
}

// shared says which of the replicas prefilled less than a fifth of what was split.
func shared(records []record, replicas []string) error {
	count, all := map[string]int{}, 0
	for _, rec := range records {
		if rec.Mode == "split" {
			count[rec.Prefill]++
			all++
		}
	}
	say("prefilled by: %v", count)
	var errs []error
	for _, name := range replicas {
		if 5*count[name] < all {
			errs = append(errs, fmt.Errorf("%s prefilled %d of %d prompts", name, count[name], all))
		}
	}
	return errors.Join(errs...)
}

// replicaSeen is what the suite reads of a replica at the router's /debug/replicas.
type replicaSeen struct {
	Name  string `json:"replica"`
	Facts struct {
		Models, Adapters []string
		Blocks           int
		Ranks            int
		Events           struct{ Endpoint, Replay string }
	} `json:"facts"`
	Events string `json:"events"`
	Stream struct {
		Events       uint64 `json:"events"`
		Lost         uint64 `json:"lost"`
		DecodeErrors uint64 `json:"decode_errors"`
		WrongRank    uint64 `json:"wrong_rank"`
	} `json:"event_stream"`
	Book struct {
		Usage float64 `json:"usage"`
	} `json:"book"`
}

func readReplicas(ctx context.Context, r *router) (map[string]replicaSeen, error) {
	body, err := get(ctx, r.admin+"/debug/replicas")
	if err != nil {
		return nil, err
	}
	var page struct{ Replicas []replicaSeen }
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("/debug/replicas: %w: %.200s", err, body)
	}
	seen := map[string]replicaSeen{}
	for _, one := range page.Replicas {
		seen[one.Name] = one
	}
	return seen, nil
}

// ranksKnown holds what Tandem says of each replica to how the engines were started: the blocks of a rank, of which one is never given out, and where its
// events come from.
func (s *stage) ranksKnown(ctx context.Context, r *router) error {
	seen, err := readReplicas(ctx, r)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range s.engines {
		if e.Role == "" {
			continue
		}
		for rank, name := range e.rankNames() {
			one, ok := seen[name]
			if !ok {
				errs = append(errs, fmt.Errorf("Tandem knows no replica %s", name))
				continue
			}
			errs = append(errs, e.likes(one, rank))
		}
	}
	if want := s.engine("p0").Ranks + 1; len(seen) != want {
		errs = append(errs, fmt.Errorf("Tandem has %d replicas instead of %d", len(seen), want))
	}
	return errors.Join(errs...)
}

// likes says what of a replica is not as that rank of e was started.
func (e *engine) likes(seen replicaSeen, rank int) error {
	var errs []error
	expect := func(what string, got, want any) {
		if got != want {
			errs = append(errs, fmt.Errorf("%s: %s is %v by Tandem's word, and %v in truth", seen.Name, what, got, want))
		}
	}
	at := func(first int) string { return "tcp://127.0.0.1:" + strconv.Itoa(first+rank) }
	expect("the number of usable blocks", seen.Facts.Blocks, e.Blocks-1)
	expect("the number of ranks", seen.Facts.Ranks, max(e.Ranks, 1))
	expect("the address of its events", seen.Facts.Events.Endpoint, at(e.Events))
	expect("the address of its replay", seen.Facts.Events.Replay, at(e.Replay))
	expect("the state of its events", strings.HasPrefix(seen.Events, "live"), true)
	if st := seen.Stream; st.Events == 0 || st.Lost+st.DecodeErrors+st.WrongRank > 0 {
		errs = append(errs, fmt.Errorf("%s: its stream brought %d events, lost %d, %d could not be read, %d were another rank's", seen.Name, st.Events, st.Lost, st.DecodeErrors, st.WrongRank))
	}
	return errors.Join(errs...)
}

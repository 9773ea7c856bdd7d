package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/panics"
)

// fixed is a source with a given result.
type fixed struct {
	found   []Found
	changed func()
}

func (f *fixed) Found(*config.Config) []Found { return f.found }
func (f *fixed) Configure(*config.Config)     {}
func (f *fixed) Run(ctx context.Context, changed func()) {
	f.changed = changed
	<-ctx.Done()
}

func answer(state State, pool string, urls ...string) Found {
	f := Found{State: state, Members: config.Members{Source: "test", Name: "q" + state.String(), Pool: pool}}
	if state == Held {
		f.Err = "SERVFAIL"
	}
	for _, u := range urls {
		f.Replicas = append(f.Replicas, config.Replica{URL: u})
	}
	return f
}

// tested returns a set with one source, and its log.
func tested(found ...Found) (*Set, *fixed, *bytes.Buffer) {
	var log bytes.Buffer
	src := &fixed{found: found}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	return New(logger, panics.Guard{Log: logger}, src), src, &log
}

func with(prefill, decode string) *config.Config {
	return config.FromFlags("", strings.Fields(prefill), strings.Fields(decode))
}

// joined applies file, and returns the members of both pools as "p0 p1 | d0".
func joined(s *Set, file *config.Config) string {
	j := s.Join(file)
	s.Apply(j)
	var sides []string
	for _, p := range []config.Pool{j.Config.Pools.Prefill, j.Config.Pools.Decode} {
		var urls []string
		for _, r := range p.Replicas {
			urls = append(urls, strings.TrimPrefix(r.URL, "http://"))
		}
		sides = append(sides, strings.Join(urls, " "))
	}
	return strings.Join(sides, " | ")
}

// The file has priority, then new results, then remembered results. A contradiction is reported once.
func TestWhoWins(t *testing.T) {
	s, _, log := tested(
		answer(Held, "prefill", "http://p1", "http://x"),
		answer(Fresh, "decode", "http://x", "http://d0", "http://p0"),
	)
	file := with("p0", "d0")
	for range 2 {
		if got, want := joined(s, file), "p0 p1 | d0 x"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if n := strings.Count(log.String(), "left out"); n != 2 { // p0 in decode, x in prefill
		t.Errorf("the log leaves out %d replicas, want 2:\n%s", n, log)
	}
	if n := strings.Count(log.String(), "the members found last stay"); n != 1 {
		t.Errorf("the failure is logged %d times, want once:\n%s", n, log)
	}
}

// If two queries find the same engine, that is reported once, with the remedy. An engine of the file, or one
// that was a member before, is not reported.
func TestTwoQuestionsFindOneEngine(t *testing.T) {
	dns := answer(Fresh, "decode", "http://d0", "http://d1", "http://d2")
	dns.Source = "dns"
	s, _, log := tested(answer(Fresh, "decode", "http://d1", "http://d2"), dns)
	file := with("", "d2")
	for range 2 {
		if got, want := joined(s, file), " | d2 d1 d0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	const told = "discovery.dns: qfresh: finds replicas that discovery.test: qfresh finds, too, and their " +
		"settings are those of the latter; take one of the two out of the file"
	if text := log.String(); strings.Count(text, told) != 1 || strings.Count(text, "left out") != 1 {
		t.Errorf("want once %q:\n%s", told, text)
	}
	s, _, log = tested(answer(Fresh, "decode", "http://d1"), answer(Waiting, "decode"))
	joined(s, with("", "d0 d1"))
	if got := joined(s, with("", "")); got != " | d1 d0" || strings.Contains(log.String(), "left out") {
		t.Errorf("%s, and\n%s", got, log)
	}
}

// A query without an answer removes nothing: the members of its pool stay until the first answer, and no
// longer. Other pools do not change.
func TestAQuestionWithoutAnAnswerTakesNothingAway(t *testing.T) {
	s, src, _ := tested(answer(Fresh, "decode", "http://d1"))
	file := with("p0 p1", "d0")
	step := func(file *config.Config, want string, found ...Found) {
		t.Helper()
		if found != nil {
			src.found = found
		}
		if got := joined(s, file); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	step(file, "p0 p1 | d0 d1")
	file = with("p0", "") // p1, d0 and the query that found d1 are removed from the file
	step(file, "p0 | d0 d1", answer(Waiting, "decode"))
	step(file, "p0 | d0 d1")
	file = with("p0", "d2")
	step(file, "p0 | d2 d0 d1")
	step(file, "p0 | d2 d1", answer(Fresh, "decode", "http://d1"))
	step(file, "p0 | d2", answer(Fresh, "decode", "http://d2"))
}

// A reload with a selector that matches nothing removes nothing. When the query has found a member once,
// an empty answer counts.
func TestAnEmptyAnswerToANewQuestionTakesNothingAway(t *testing.T) {
	s, src, log := tested()
	step := func(file *config.Config, want string, state State, urls ...string) {
		t.Helper()
		f := answer(state, "decode", urls...)
		f.Name = "own: role=decode"
		src.found = []Found{f}
		if got := joined(s, file); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		told := strings.Contains(strings.Join(s.Found()[0].Left, ""), "the former members for decode stay until")
		if tells := state == Fresh && want == "p0 | d0 d1"; told != tells {
			t.Errorf("%s: it is told that the former members stay: %t", want, told)
		}
	}
	src.found = nil
	if got := joined(s, with("p0", "d0 d1")); got != "p0 | d0 d1" {
		t.Error(got)
	}
	file := with("p0", "")
	step(file, "p0 | d0 d1", Waiting)
	step(file, "p0 | d0 d1", Fresh)
	step(file, "p0 | d0 d1", Fresh)
	other := with("p0", "")
	step(other, "p0 | d0 d1", Fresh) // a reload with the same query
	step(other, "p0 | d2", Fresh, "http://d2")
	step(other, "p0 | ", Fresh)
	last := with("p0 p1", "d3")
	step(last, "p0 p1 | d3", Fresh)
	step(with("p0", ""), "p0 | ", Fresh)
	if n := strings.Count(log.String(), "the former members"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log)
	}
}

// Discovery counts as recovered after an answer, but not after a reload without a new answer.
func TestWorksAgain(t *testing.T) {
	f := answer(Waiting, "decode")
	s, src, log := tested(f)
	for _, step := range []struct {
		state State
		err   string
		told  int
	}{
		{Waiting, "connection refused", 0},
		{Waiting, "", 0},
		{Waiting, "connection refused", 0},
		{Fresh, "", 1},
		{Held, "connection refused", 1},
		{Fresh, "", 2},
	} {
		src.found[0].State, src.found[0].Err = step.state, step.err
		joined(s, with("", ""))
		if n := strings.Count(log.String(), "works again"); n != step.told {
			t.Errorf("%v %q: logged %d times, want %d:\n%s", step.state, step.err, n, step.told, log)
		}
	}
}

// Members that an earlier process found serve until their query is answered, and are reported as old.
// Another file has other queries.
func TestMembersOfAnEarlierProcess(t *testing.T) {
	first, _, _ := tested(answer(Fresh, "decode", "http://d0", "http://d1"), answer(Fresh, "prefill"))
	file := with("p0", "")
	if first.Keep(time.Now()) != nil {
		t.Error("members are kept before the first answer")
	}
	joined(first, file)
	at := time.Now().Add(-keptFor / 2)
	kept := first.Keep(at)

	s, src, log := tested(answer(Waiting, "decode"), answer(Waiting, "prefill"))
	src.found[0].Name = "qfresh" // the name of the former query
	s.Remember(kept, time.Now())
	if len(s.changed) != 1 {
		t.Error("the members did not join at once")
	}
	step := func(file *config.Config, want string, state State) {
		t.Helper()
		got := joined(s, file)
		if is := s.Found()[0]; got != want || is.State != state {
			t.Errorf("%s by an answer that is %v, want %s and %v", got, is.State, want, state)
		}
	}
	step(file, "p0 | d0 d1", Remembered)
	src.found[0].Err = "connection refused"
	step(file, "p0 | d0 d1", Remembered)
	if is := s.Found()[0]; is.Err == "" || !is.Since.Equal(at) {
		t.Errorf("found %+v, want the error and the time of the members", is)
	}
	if again := s.Keep(at.Add(time.Minute)); len(again.Answers) != 1 {
		t.Errorf("kept for the next process: %+v", again)
	}
	if text := log.String(); strings.Count(text, "an earlier process found serve") != 1 {
		t.Errorf("not logged exactly once:\n%s", text)
	}
	step(with("p0", "d7"), "p0 | d7 d0 d1", Remembered) // a reload with the same query
	src.found[0] = answer(Fresh, "decode", "http://d1")
	step(file, "p0 | d1", Fresh)
	src.found[0].State, src.found[0].Replicas = Waiting, nil
	step(file, "p0 | ", Waiting)

	s, src, _ = tested(answer(Waiting, "decode"))
	src.found[0].Name = "qfresh"
	other := with("p0", "")
	other.Discovery.DNS.Servers = []string{"10.0.0.10:53"}
	s.Remember(kept, time.Now())
	step(other, "p0 | ", Waiting)
	step(file, "p0 | ", Waiting) // a member that was passed over does not return

	s, src, log = tested(answer(Waiting, "decode"))
	src.found[0].Name = "qfresh"
	s.Remember(kept, at.Add(keptFor+time.Second))
	step(file, "p0 | ", Waiting)
	if !strings.Contains(log.String(), "too old") {
		t.Errorf("not logged:\n%s", log)
	}
}

// A restart beside a reload with a selector that matches nothing removes nothing, whichever of the two comes
// first. When the query has found a member once, an empty answer counts. Members of another namespace are not
// those of this router.
func TestARestartWithAWrongSelectorTakesNothingAway(t *testing.T) {
	of := func(namespace, selector string) *config.Config {
		c := with("p0", "")
		c.Discovery.Kubernetes.Namespace, c.Discovery.Kubernetes.Decode.Selector = namespace, selector
		return c
	}
	named := func(f Found, name string) Found {
		f.Name = name
		return f
	}
	first, src, _ := tested(named(answer(Fresh, "decode", "http://d0", "http://d1"), "role=decode"))
	joined(first, of("llm", "role=decode"))
	right := first.Keep(time.Now())
	src.found[0] = named(answer(Fresh, "decode"), "role=decod")
	if got := joined(first, of("llm", "role=decod")); got != "p0 | " {
		t.Errorf("a question that has its answer at once: %s", got)
	}
	first, src, _ = tested(named(answer(Fresh, "decode", "http://d0", "http://d1"), "role=decode"))
	joined(first, of("llm", "role=decode"))
	src.found[0] = named(answer(Waiting, "decode"), "role=decod")
	joined(first, of("llm", "role=decod"))
	reloaded := first.Keep(time.Now())

	for name, kept := range map[string]*Kept{"restart": right, "reload, then restart": reloaded} {
		raw, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ namespace, selector, want, later string }{
			{"llm", "role=decod", "p0 | d0 d1", "p0 | d0 d1"},
			{"other", "role=decod", "p0 | ", "p0 | "},
		} {
			s, src, log := tested(named(answer(Waiting, "decode"), step.selector))
			read := new(Kept)
			if err := json.Unmarshal(raw, read); err != nil {
				t.Fatal(err)
			}
			s.Remember(read, time.Now())
			file := of(step.namespace, step.selector)
			if got := joined(s, file); got != step.want {
				t.Errorf("%s, %s: %s, want %s", name, step.namespace, got, step.want)
			}
			src.found[0] = named(answer(Fresh, "decode"), step.selector)
			if got := joined(s, file); got != step.later {
				t.Errorf("%s, %s, empty answer: %s, want %s", name, step.namespace, got, step.later)
			}
			if told := strings.Contains(log.String(), "former members"); told != (step.later == "p0 | d0 d1") {
				t.Errorf("%s, %s: logged %t:\n%s", name, step.namespace, told, log)
			}
			src.found[0] = named(answer(Fresh, "decode", "http://d2"), step.selector)
			if got := joined(s, file); got != "p0 | d2" {
				t.Errorf("%s, %s: %s after an answer", name, step.namespace, got)
			}
			src.found[0] = named(answer(Fresh, "decode"), step.selector)
			if got := joined(s, file); got != "p0 | " {
				t.Errorf("%s, %s: %s after the pods have gone", name, step.namespace, got)
			}
		}
	}
}

// Members that could not be applied are tried again, even if no source has a change.
func TestMembersThatCannotBeUsedAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src, log := tested()
		ctx, cancel := context.WithCancel(t.Context())
		tries, ended := 0, make(chan struct{})
		go func() {
			s.Run(ctx, func() error {
				if tries++; tries < 3 {
					return errors.New("ca.pem cannot be read")
				}
				return nil
			})
			close(ended)
		}()
		synctest.Wait()
		src.changed()
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if tries != 3 || strings.Count(log.String(), "ca.pem cannot be read") != 2 {
			t.Errorf("%d tries, want 3:\n%s", tries, log)
		}
	})
}

// Many changes are combined into few, and no change is lost.
func TestChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src, _ := tested()
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		began, ended := time.Now(), make(chan struct{})
		go func() {
			s.Run(ctx, func() error {
				at = append(at, time.Since(began))
				return nil
			})
			close(ended)
		}()
		synctest.Wait()
		for range 25 {
			src.changed()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if want := []time.Duration{0, joinsApart, 2 * joinsApart, 3 * joinsApart}; !slices.Equal(at, want) {
			t.Errorf("members changed at %v, want %v", at, want)
		}
	})
}

// The start waits for a short time until other routers are found.
func TestTheStartWaitsForRouters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, src, _ := tested(answer(Waiting, "decode"))
		joined(s, with("", ""))
		s.WaitForRouters(t.Context())
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %v without a query for routers", took)
		}
		src.found = []Found{answer(Waiting, config.Peers)}
		joined(s, with("", ""))
		s.WaitForRouters(t.Context())
		if took := time.Since(began); took != routersTime {
			t.Errorf("waited %v for routers that do not exist, want %v", took, routersTime)
		}
		go func() {
			time.Sleep(time.Second)
			src.found[0].Err = "SERVFAIL"
			joined(s, with("", ""))
		}()
		s.WaitForRouters(t.Context())
		if took := time.Since(began); took != routersTime+time.Second {
			t.Errorf("waited %v, want %v", took, routersTime+time.Second)
		}
	})
}

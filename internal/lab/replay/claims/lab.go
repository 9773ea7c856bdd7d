package claims

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Workload is a trace and how it is played.
type Workload uint8

// The workloads. Conversation is Mooncake's trace with its ticks spread; Agents are Weka's closed loops with
// contexts that fit 131,072 tokens.
const (
	Conversation Workload = iota
	Agents
	Clients // synthetic, see [Loops]
)

func (w Workload) String() string { return [...]string{"conversation", "agents", "clients"}[w] }

// file is the name of the trace's file.
func (w Workload) file() string {
	return [...]string{"mooncake_conversation.jsonl.gz", "weka_agentic_dev.jsonl.gz", ""}[w]
}

// Setting is one play. Equal settings give equal plays.
type Setting struct {
	Workload Workload
	Cluster  string
	Cache    float64 // KV capacity, as a multiple of the GPUs' own
	// Conversation: density of arrivals, as a multiple of the recorded one; Agents: sessions a second.
	Load float64
	// Conversation: recorded time that is played, at any load; Agents: time in which sessions start.
	Span     time.Duration
	Policy   string
	Seed     uint64
	EventLag time.Duration // delay of KV events
	Poll     time.Duration // between two load reports
	Link     float64       // GB/s between engines, 0: 40
	Loops    Loops         // of Clients
	Troubles string        // failures of replicas, see [cluster.ParseTroubles]
	Misstate string        // wrong facts that routers get, see [cluster.ParseMisstated]
}

func (s Setting) String() string {
	text := fmt.Sprintf("%v %s cache %.3g load %.4g %s seed %d %s %s",
		s.Workload, s.Cluster, s.Cache, s.Load, s.Policy, s.Seed, s.Troubles, s.Misstate)
	return strings.Join(strings.Fields(text), " ")
}

// at returns s at another load.
func (s Setting) at(load float64) Setting {
	s.Load = load
	return s
}

// slo is the limit of a good answer. At a capacity 90 % of the answers are good.
var slo = replay.SLO{TTFT: 5 * time.Second, TPOT: 100 * time.Millisecond}

// play makes the simulator's input.
func (s Setting) play(traces string) replay.Play {
	p := replay.Play{
		Cluster: s.Cluster, Profile: "70b", Cache: s.Cache, Link: s.Link, Seed: s.Seed,
		EventLag: s.EventLag, Poll: s.Poll, SLO: slo, Troubles: s.Troubles,
	}
	if s.Workload != Clients {
		p.Trace = filepath.Join(traces, s.Workload.file())
	}
	switch s.Workload {
	case Conversation:
		p.Scale, p.For = s.Load, time.Duration(float64(s.Span)/s.Load)
	case Agents:
		p.Rate, p.For = s.Load, s.Span
	case Clients:
		p.Sessions = func() cluster.Source { return s.Loops.source(s.Seed) }
	}
	return p
}

// Answer is the result of one measured request.
type Answer struct {
	Session, Call  int32
	TTFT, TPOT     float32  // s; a refused request counts as [replay.RefusedTTFT]
	Total          float32  // s until the last token
	Prompt, Cached int32    // tokens
	Output         int32    // tokens
	Moved          float32  // bytes
	Replica        [2]int16 // prefill, -1 if the decode replica prefilled, and decode
	Refused        bool
	Failed         bool    // its client got an error; counts as a refused one
	At             float32 // s
}

func (a *Answer) local() bool { return a.Replica[cluster.Prefill] < 0 && !a.Refused && !a.Failed }

func (a *Answer) good() bool {
	return !a.Refused && !a.Failed && float64(a.TTFT) <= slo.TTFT.Seconds() &&
		float64(a.TPOT) <= slo.TPOT.Seconds()
}

// Trial is one finished play.
type Trial struct {
	Setting Setting
	Outcome *replay.Outcome
	Answers []Answer // by session and call
}

// measured keeps the requests of sessions that began after the warm-up. The begin of a session does not
// depend on the policy, so the same requests are measured with each policy. It keeps all requests of Clients,
// because all clients begin at once; see [steady].
func measured(rs []cluster.Record, w Workload) []Answer {
	begun := map[int]time.Duration{}
	for i := range rs {
		r := &rs[i]
		if at, ok := begun[r.Session]; !ok || r.At < at {
			begun[r.Session] = r.At
		}
	}
	from := replay.WarmUp(rs)
	var out []Answer
	for i := range rs {
		if r := &rs[i]; w == Clients || begun[r.Session] >= from {
			out = append(out, answer(r))
		}
	}
	slices.SortFunc(out,
		func(a, b Answer) int { return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Call, b.Call)) })
	return out
}

func answer(r *cluster.Record) Answer {
	a := Answer{
		Session: int32(r.Session), Call: int32(r.Call), TTFT: float32(r.TTFT.Seconds()), TPOT: float32(r.TPOT()),
		Total: float32(r.Total.Seconds()), Prompt: int32(r.Prompt),
		Cached: int32(r.Cached), Output: int32(r.Output), Moved: float32(r.Moved),
		Replica: [2]int16{int16(r.Prefill), int16(r.Decode)}, Refused: r.Refused,
		Failed: r.Failed, At: float32(r.At.Seconds()),
	}
	if r.Refused || r.Failed {
		a.TTFT = replay.RefusedTTFT
	}
	return a
}

// lab plays settings, each only once, several at a time.
type lab struct {
	Options
	slots chan struct{}

	runs memo[Setting, *Trial]

	mu   sync.Mutex // guards the following
	done int
}

// memo computes each value once, at the first call for it. All other callers wait. The zero memo is empty.
// Safe for concurrent use.
type memo[K comparable, V any] struct {
	mu   sync.Mutex
	made map[K]func() (V, error)
}

func (m *memo[K, V]) get(key K, what func() (V, error)) (V, error) {
	m.mu.Lock()
	made := m.made[key]
	if made == nil {
		if m.made == nil {
			m.made = map[K]func() (V, error){}
		}
		made = sync.OnceValues(what)
		m.made[key] = made
	}
	m.mu.Unlock()
	return made()
}

func newLab(o Options) *lab {
	return &lab{Options: o, slots: make(chan struct{}, max(1, o.Workers))}
}

// run plays s, or returns the result of an earlier play of s.
func (l *lab) run(ctx context.Context, s Setting) (*Trial, error) {
	return l.runs.get(s, func() (*Trial, error) { return l.play(ctx, s) })
}

func (l *lab) play(ctx context.Context, s Setting) (*Trial, error) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	p := s.play(l.Traces)
	p.Links, p.Host = l.Links, l.Host
	var err error
	if p.Misstated, err = cluster.ParseMisstated(s.Misstate); err != nil {
		return nil, err
	}
	o, rs, err := p.Once(ctx, s.Policy)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", s, err)
	}
	r := &Trial{Setting: s, Outcome: o, Answers: measured(rs, s.Workload)}
	l.mu.Lock()
	l.done++
	n := l.done
	l.mu.Unlock()
	l.say("play %3d: %v: TTFT %.3g/%.3g/%.3g s, TPOT p99 %.0f ms, %.1f %% good, hit %.0f %%, local %.0f %%, "+
		"busy %.0f/%.0f %%, preempted %d, refused %d, errors %d (%s)", n, s, o.TTFT.Mean, o.TTFT.P50, o.TTFT.P99,
		o.TPOT.P99*1e3, o.Good*100, o.Hit*100, o.Local*100, o.Busy[0]*
			100, o.Busy[1]*100, o.Preempted, o.Refused, o.Failed, time.Since(began).Round(time.Second/10))
	return r, nil
}

// once plays s with the first seed.
func (l *lab) once(ctx context.Context, s Setting) ([]*Trial, error) {
	s.Seed = 1
	r, err := l.run(ctx, s)
	return []*Trial{r}, err
}

func (l *lab) say(format string, args ...any) {
	if l.Progress != nil {
		l.Progress(fmt.Sprintf(format, args...))
	}
}

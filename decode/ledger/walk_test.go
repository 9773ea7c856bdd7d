package ledger

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/decode/order"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// common compares prompts whose blocks have 16 tokens.
func common(a, b *roster.Prompt, known int) int {
	if (a.Chunk > 0) != (b.Chunk > 0) {
		return known
	}
	return max(known, 16*kv.Common(a.Keys, b.Keys))
}

// keysFrom names the blocks of a prompt that goes its own way from one block on.
func keysFrom(fork, to, n int) []kv.Key {
	keys := make([]kv.Key, n)
	for i := range keys {
		if keys[i] = kv.Key(i + 1); i >= fork {
			keys[i] += kv.Key(1e6*fork + 1e9*(to+1))
		}
	}
	return keys
}

// accounts is a ledger with two accounts, and leases that come and go at random.
type accounts struct {
	ledger Ledger
	all    [2]Account
	live   []*Lease
	now    time.Time
	seen   *visited
}

// visited are the states that leases and their prompts have had.
type visited struct {
	leases  map[State]bool
	prompts map[PromptState]bool
}

func (v *visited) note(l *Lease) { v.leases[l.state], v.prompts[l.prompt] = true, true }

// statesOf returns the names of the constants of a type, in their order, which begins at 0.
func statesOf(t *testing.T, of string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "lease.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		first := block.Specs[0].(*ast.ValueSpec)
		if is, ok := first.Type.(*ast.Ident); !ok || is.Name != of {
			continue
		}
		for _, spec := range block.Specs {
			names = append(names, spec.(*ast.ValueSpec).Names[0].Name)
		}
	}
	return names
}

// complete checks that each state was visited and stands in the diagram of the package comment.
func complete[S ~uint8](t *testing.T, of string, visited map[S]bool) {
	t.Helper()
	comment, err := os.ReadFile("ledger.go")
	if err != nil {
		t.Fatal(err)
	}
	names := statesOf(t, of)
	for i, name := range names {
		if !visited[S(i)] {
			t.Errorf("no lease was ever %s: add its event to the walk, or remove the state", name)
		}
		if !strings.Contains(string(comment), "\n//\t"+name+" ") {
			t.Errorf("the package comment does not draw %s", name)
		}
	}
	if len(names) < 4 {
		t.Errorf("%s has the values %v: the test looks at nothing", of, names)
	}
}

// TestSumsAreThoseOfAWalk lets leases of two accounts pass through their states in any order, with reports
// and time in between. At every step each sum and each list is that of an obvious walk over the leases. At
// the end nothing is left, and leases and prompts have had every state.
func TestSumsAreThoseOfAWalk(t *testing.T) {
	seen := &visited{leases: map[State]bool{}, prompts: map[PromptState]bool{}}
	rapid.Check(t, func(t *rapid.T) {
		w := &accounts{ledger: New(), now: start, seen: seen}
		t.Repeat(map[string]func(*rapid.T){
			"enter":  w.enter,
			"send":   w.send,
			"arrive": func(t *rapid.T) { l := w.pick(t); l.account.Arrive(l) },
			"answer": w.answer,
			"end":    func(t *rapid.T) { w.end(t, rapid.IntRange(0, max(0, len(w.live)-1))) },
			"report": w.report,
			"late":   w.late,
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
				w.ledger.AdmitDue(w.now)
			},
			"": w.check,
		})
		for len(w.live) > 0 {
			w.end(t, rapid.Just(0))
		}
		w.check(t)
		for i := range w.all {
			b := &w.all[i]
			if b.Sums != (Sums{}) || b.Reserved() != 0 || b.Coming().Moving() != 0 || b.Preempted() != 0 {
				t.Fatalf("%+v is left without a lease", b)
			}
		}
		if n := w.ledger.Reserved(); n != 0 {
			t.Fatalf("%d leases are left in the heap of reserved leases", n)
		}
	})
	complete(t, "State", seen.leases)
	complete(t, "PromptState", seen.prompts)
}

func (w *accounts) pick(t *rapid.T) *Lease {
	if len(w.live) == 0 {
		t.Skip("no lease")
	}
	return w.live[rapid.IntRange(0, len(w.live)-1).Draw(t, "lease")]
}

func (w *accounts) enter(t *rapid.T) {
	l := &Lease{Promise: Promise{
		Tokens: rapid.IntRange(1, 2000).Draw(t, "tokens"), Sequences: rapid.IntRange(1, 3).Draw(t, "sequences"),
		Local: rapid.Bool().Draw(t, "local"),
	}}
	l.Blocks = rapid.IntRange(0, l.Tokens/16+1).Draw(t, "blocks")
	l.Matched = rapid.IntRange(0, l.Tokens/16).Draw(t, "matched") * 16
	l.Named.Keys = keysFrom(rapid.IntRange(0, l.Tokens/16).Draw(t, "fork"), rapid.IntRange(0, 3).Draw(t, "to"),
		l.Tokens/16)
	if rapid.IntRange(0, 4).Draw(t, "text") == 0 {
		l.Named.Chunk = 16
	}
	terms := Terms{
		Growth: rapid.IntRange(0, 90).Draw(t, "growth"),
		Admit:  w.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "reserved")) * time.Millisecond),
	}
	if !l.Local {
		terms.Send = terms.Admit.Add(time.Duration(len(w.live)%7) * time.Second / 7)
		terms.Land = terms.Send.Add(time.Second)
		l.Transfer = time.Duration(rapid.IntRange(0, 2000).Draw(t, "moving")) * time.Millisecond
	}
	if rapid.IntRange(0, 5).Draw(t, "canary") == 0 {
		terms.Prompt = Arrived
	}
	if rapid.Bool().Draw(t, "unseen") {
		l.UnseenArrival = time.Second
	}
	w.ledger.Enter(&w.all[rapid.IntRange(0, 1).Draw(t, "account")], l, terms, w.now)
	w.live = append(w.live, l)
}

func (w *accounts) send(t *rapid.T) {
	if l := w.pick(t); l.State() < Sent {
		w.ledger.Send(l, w.now)
	}
}

func (w *accounts) answer(t *rapid.T) {
	if l := w.pick(t); l.AtEngine() {
		l.account.Arrive(l)
		l.account.Answer(l)
	}
}

func (w *accounts) end(t *rapid.T, which *rapid.Generator[int]) {
	if len(w.live) == 0 {
		t.Skip("no lease")
	}
	i := which.Draw(t, "lease")
	l := w.live[i]
	if l.State() == Reported {
		l.account.ComeFree(l, own(l), w.now)
	}
	l.account.Arrive(l)
	w.ledger.End(l)
	w.seen.note(l)
	w.live = slices.Delete(w.live, i, i+1)
}

func own(l *Lease) int { return l.Blocks }

func (w *accounts) report(t *rapid.T) {
	b := &w.all[rapid.IntRange(0, 1).Draw(t, "account")]
	report := replica.NoLoad()
	report.Running = rapid.IntRange(-1, 9).Draw(t, "running")
	report.Waiting = rapid.IntRange(-1, 4).Draw(t, "waiting")
	running, ok := b.Running(&report)
	if !ok {
		return
	}
	b.CountFrom(0.5, running, w.now)
	w.overdue(b)
	b.CountPreempted(&report, b.Cover(running, w.now), rapid.IntRange(0, 2).Draw(t, "others"), own)
	for _, l := range b.Leases() {
		if l.State() == Reported {
			b.Grow(l, rapid.IntRange(0, 500).Draw(t, "generated"), rapid.IntRange(0, 90).Draw(t, "growth"))
		}
	}
}

// late lets so much time pass that prompts should have arrived without a first token.
func (w *accounts) late(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1000, 2500).Draw(t, "late")) * time.Millisecond)
	w.ledger.AdmitDue(w.now)
	for i := range w.all {
		w.overdue(&w.all[i])
	}
}

func (w *accounts) overdue(b *Account) {
	for l := range b.Overdue(w.now) {
		b.Arrive(l)
	}
}

func (w *accounts) check(t *rapid.T) {
	reserved := 0
	for i := range w.all {
		b := &w.all[i]
		want, asked, moving := walk(t, b)
		if b.Sums != want || b.Reserved() != asked || b.Coming().Moving() != moving {
			t.Fatalf("the account says %+v, %d reserved, %v moving; a walk %+v, %d and %v",
				b.Sums, b.Reserved(), b.Coming().Moving(), want, asked, moving)
		}
		for _, l := range b.leases {
			w.seen.note(l)
			if l.state != Reserved {
				continue
			}
			if reserved++; !w.ledger.reserved.Has(l) {
				t.Fatal("a reserved lease is not where it says in the heap")
			}
			if l.admitAt <= w.ledger.At(w.now) {
				t.Fatalf("a lease is reserved until %d, and it is %d", l.admitAt, w.ledger.At(w.now))
			}
		}
		checkLists(t, b)
		checkQuestions(t, b, w.ledger.At(w.now))
	}
	if n := w.ledger.Reserved(); n != reserved {
		t.Fatalf("%d reserved leases, %d in the heap", reserved, n)
	}
}

// walk counts again what b sums up.
func walk(t *rapid.T, b *Account) (s Sums, reserved int, moving time.Duration) {
	for i, l := range b.leases {
		whole := l.Blocks + l.growth
		switch l.state {
		case Reserved:
			reserved += whole
			s.Queued += l.Sequences
		case Admitted, Sent:
			s.Promised += whole
		case Reported:
			s.Growth += l.growth
		default:
			t.Fatal("an ended lease is still on the list")
		}
		if l.prompt <= Due && !l.Local {
			moving += l.Transfer
		}
		if l.slot != i || (l.state >= Sent) == l.sentAt.IsZero() || l.prompt == Answered && l.state < Sent {
			t.Fatalf("lease %d in slot %d: %+v", i, l.slot, l)
		}
		if l.state >= Sent {
			s.Sent += l.Sequences
		}
		if l.state == Sent && l.prompt != Answered {
			s.Unheard++
		}
		if l.state == Reserved {
			continue
		}
		s.Held += whole
		s.Sequences += l.Sequences
		switch {
		case l.prompt != Pending:
			s.Answering += l.Sequences
			s.Context += l.Sequences * (l.Tokens + l.generated)
		case !l.Local:
			s.Arriving += l.Sequences
			s.Expecting += whole
		}
	}
	return s, reserved, moving
}

// checkLists compares the lists of b with the same lists of its leases.
func checkLists(t *rapid.T, b *Account) {
	var want orders
	for _, l := range b.leases {
		want.count(l, 1)
	}
	got := &b.orders
	for name, o := range map[string][2]*order.List{
		"reserved": {&got.reserved, &want.reserved}, "coming": {&got.coming.all, &want.coming.all},
		"unsent": {&got.coming.unsent, &want.coming.unsent}, "landing": {&got.coming.landing, &want.coming.landing},
	} {
		if !slices.Equal(entries(o[0]), entries(o[1])) {
			t.Fatalf("%s: %v, counted %v", name, entries(o[0]), entries(o[1]))
		}
	}
	if !slices.Equal(got.held, want.held) || !slices.Equal(got.unanswered, want.unanswered) {
		t.Fatal("prompts are in another order than counted")
	}
}

func entries(o *order.List) (all []order.Entry) {
	for _, r := range o.Runs() {
		all = append(all, r.Entries...)
	}
	return all
}

// checkQuestions compares what b answers with a walk over all leases.
func checkQuestions(t *rapid.T, b *Account, now int64) {
	coming := slices.DeleteFunc(slices.Clone(b.leases), func(l *Lease) bool { return l.Local || !l.Missing() })
	for _, wait := range []float64{0, 0.3, 2} {
		const warm = 1.5
		sum, n := 0.0, 0
		for _, l := range coming {
			needs := l.needs(wait, now)
			if sum += max(0, wait+warm-needs); needs < wait+warm {
				n++
			}
		}
		if got := b.Coming().Delayed(wait, warm, now); math.Abs(got-sum) > 1e-6 {
			t.Fatalf("a prompt that begins in %g s delays others by %g s, want %g", wait, got, sum)
		}
		if got := b.Coming().Needs(wait, wait+warm, now); got != n {
			t.Fatalf("a prompt that begins in %g s delays %d, want %d", wait, got, n)
		}
	}
	inbound := func(at int64, without *Lease) (sum time.Duration) {
		for _, l := range coming {
			if l != without && l.leaves() <= at {
				sum += l.Transfer
			}
		}
		return sum
	}
	for _, in := range []time.Duration{0, time.Second, time.Minute} {
		at := now + int64(in)
		if got, want := b.Coming().Inbound(at), inbound(at, nil); got != want {
			t.Fatalf("%v of transfers begin within %v, want %v", got, in, want)
		}
	}
	for _, l := range b.leases {
		if got, want := b.Coming().InboundBeside(l, now), inbound(now, l); got != want {
			t.Fatalf("%v of transfers ahead, want %v", got, want)
		}
		checkShared(t, b, l)
	}
}

func checkShared(t *rapid.T, b *Account, l *Lease) {
	held, unanswered := l.Matched, l.Matched
	for _, o := range b.leases {
		if o != l && o.state == Reported {
			held = common(&l.Named, &o.Named, held)
		}
		if o != l && o.state >= Sent && o.prompt != Answered {
			unanswered = common(&l.Named, &o.Named, unanswered)
		}
	}
	if got := b.InReport(l, l.Matched); got != held {
		t.Fatalf("a prompt shares %d tokens with reported prompts, want %d", got, held)
	}
	if got := b.Unanswered(l, l.Matched); got != unanswered {
		t.Fatalf("a prompt shares %d tokens with unanswered prompts, want %d", got, unanswered)
	}
}

// needs returns in how many seconds l needs a place in a step, beside a local prefill that begins in wait
// seconds and was sent already, +Inf for never.
func (l *Lease) needs(wait float64, now int64) float64 {
	in := func(at int64) float64 { return time.Duration(at - now).Seconds() }
	if l.state < Sent {
		return max(wait, in(l.sendAt))
	}
	if lands := max(0, in(l.landAt)); lands >= wait {
		return lands
	}
	return math.Inf(1)
}

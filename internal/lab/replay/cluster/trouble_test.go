package cluster

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// survivor is a script that receives failures, and tries each request a given number of times.
type survivor struct {
	script
	tries     int
	after     time.Duration
	givesBack bool
	failures  []Failure
	members   []string
}

func (s *survivor) Failed(_ *Query, f Failure, _ time.Time) Verdict {
	s.failures = append(s.failures, f)
	return Verdict{Again: len(s.failures) < s.tries, After: s.after, GivesBack: s.givesBack}
}

func (s *survivor) Member(side Side, i int, here bool, now time.Time) {
	s.members = append(s.members, fmt.Sprintf("%s here %v at %v", ID(side, i), here, now.Sub(Time(0))))
}

func local(*Query, time.Time) (p, d int, room bool) { return -1, 0, true }

func troubled(t *testing.T, p, d int, text string) Config {
	t.Helper()
	c := config(p, d)
	var err error
	if c.Troubles, err = ParseTroubles(text); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParseTroubles(t *testing.T) {
	got, err := ParseTroubles("d0:fail@5m+1m,p12:fail=0.3@0s+90s,d2:slow=20@1s+1ms,p3:gone@1h+1s")
	want := []Trouble{
		{Side: Decode, From: 5 * time.Minute, To: 6 * time.Minute, Fail: 1},
		{Side: Prefill, Index: 12, To: 90 * time.Second, Fail: 0.3},
		{Side: Decode, Index: 2, From: time.Second, To: 1001 * time.Millisecond, Slow: 20},
		{Side: Prefill, Index: 3, From: time.Hour, To: time.Hour + time.Second, Gone: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseTroubles(""); err != nil || got != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		"d0", "d0:fail", "d0:fail@5m", "x0:fail@1s+1s", "d:fail@1s+1s", "d-1:fail@1s+1s", "d0:fail@1+1s",
		"d0:fail@1s+x", "d0:fail@1s+0s", "d0:fail@-1s+1s",
		"d0:fail=0@1s+1s", "d0:fail=1.1@1s+1s", "d0:fail=NaN@1s+1s",
		"d0:slow@1s+1s", "d0:slow=1@1s+1s", "d0:gone=1@1s+1s", "d0:dead@1s+1s",
	} {
		if _, err := ParseTroubles(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The decode leg reaches D at 40 ms, and its error reaches the router at 42 ms. Half a second later the
// prompt is sent to P again.
func TestAFailedLegIsTriedAgain(t *testing.T) {
	for _, givesBack := range []bool{false, true} {
		s := &survivor{tries: 2, after: 500 * time.Millisecond, givesBack: givesBack}
		res, err := play(t, troubled(t, 1, 1, "d0:fail@0s+100ms"), s, header+`{"t":0,"in":32,"out":3}`, 1)
		r := must(t, res, err)
		if want := []Failure{{Leg: Decode, Took: 4 * time.Millisecond}}; !reflect.DeepEqual(s.failures, want) {
			t.Errorf("the router received the failures %+v", s.failures)
		}
		// 540 ms; 2 to P; 16 of prefill, because a block is cached; 2 back; 2 to D; 32 on the link and 1 of
		// setup; a step of 10; 2 back.
		got := r.Records[0]
		if got.Failed || got.Failures != 1 || got.Cached != 16 || got.TTFT != 607*time.Millisecond {
			t.Errorf("%+v", got)
		}
		expired := r.Engines[Prefill][0].NixlExpired
		if want := map[bool]uint64{false: 1, true: 0}[givesBack]; expired != want {
			t.Errorf("gives back %v: %d leases expired, want %d", givesBack, expired, want)
		}
	}
}

// When a request of a client has finally failed, the client continues its session.
func TestAFailedCallEnds(t *testing.T) {
	s := &survivor{tries: 3, script: script{place: local}}
	text := header + `{"t":0,"s":"a","in":32,"out":3}` + "\n" + `{"t":10,"s":"a","in":32,"out":3}`
	res, err := play(t, troubled(t, 1, 1, "d0:fail@0s+1s"), s, text, 1)
	r := must(t, res, err)
	if len(s.failures) != 3 || len(r.Records) != 2 {
		t.Fatalf("%+v, %+v", s.failures, r.Records)
	}
	lost := r.Records[0]
	want := Record{Session: lost.Session, Prompt: 32, Failures: 3, Failed: true, Prefill: -1, Decode: -1}
	if lost != want {
		t.Errorf("%+v", lost)
	}
	if got := r.Records[1]; got.Failed || got.Output != 3 {
		t.Errorf("%+v", got)
	}
}

// A replica that leaves finishes its requests, accepts no connection, and returns with an empty cache.
// Routers learn about both changes a second later.
func TestWhoLeavesComesBackEmpty(t *testing.T) {
	s := &survivor{tries: 2, after: 10 * time.Second, script: script{place: local}}
	text := blocks + `{"t":0,"in":48,"out":20,"blocks":[1,2,3]}` + "\n" +
		`{"t":1,"in":48,"out":3,"blocks":[1,2,3]}` + "\n" + `{"t":20,"in":48,"out":3,"blocks":[1,2,3]}`
	res, err := play(t, troubled(t, 1, 1, "d0:gone@100ms+5s"), s, text, 1)
	r := must(t, res, err)
	if want := []string{"d0 here false at 1.1s", "d0 here true at 6.1s"}; !reflect.DeepEqual(s.members, want) {
		t.Errorf("members %q", s.members)
	}
	want := []Failure{{Leg: Decode, Refused: true, Took: 4 * time.Millisecond}}
	if !reflect.DeepEqual(s.failures, want) {
		t.Errorf("the router received the failures %+v", s.failures)
	}
	got := r.Records
	if len(got) != 3 || got[0].Output != 20 || got[1].Failures != 1 {
		t.Fatalf("%+v", got)
	}
	if got[1].Cached != 0 || got[2].Cached != 32 {
		t.Errorf("%d and %d tokens cached, want none and then two blocks", got[1].Cached, got[2].Cached)
	}
}

func TestASlowReplica(t *testing.T) {
	s := &survivor{script: script{place: local}}
	text := header + `{"t":0,"in":32,"out":1}` + "\n" + `{"t":2,"in":32,"out":1}`
	res, err := play(t, troubled(t, 1, 1, "d0:slow=10@0s+1s"), s, text, 1)
	r := must(t, res, err)
	slow, quick := r.Records[0].TTFT, r.Records[1].TTFT
	if slow != 324*time.Millisecond || quick != 36*time.Millisecond {
		t.Errorf("first tokens after %v and %v", slow, quick)
	}
}

// The seed decides which requests fail, and the number of failures follows the given share.
func TestAShareFails(t *testing.T) {
	var lines strings.Builder
	lines.WriteString(header)
	for i := range 400 {
		fmt.Fprintf(&lines, `{"t":%g,"in":16,"out":1}`+"\n", float64(i)/10)
	}
	var runs [3][]Record
	for i, seed := range []uint64{1, 1, 2} {
		s := &survivor{script: script{place: local}}
		res, err := play(t, troubled(t, 1, 1, "d0:fail=0.3@0s+1h"), s, lines.String(), seed)
		r := must(t, res, err)
		runs[i] = r.Records
		if n := len(s.failures); n < 90 || n > 150 {
			t.Errorf("seed %d: %d of 400 fail, want about 120", seed, n)
		}
	}
	if !reflect.DeepEqual(runs[0], runs[1]) || reflect.DeepEqual(runs[0], runs[2]) {
		t.Error("the failures do not follow the seed")
	}
}

func TestTroublesNeedRoutersThatGoOn(t *testing.T) {
	if _, err := New(troubled(t, 1, 1, "d0:fail@0s+1s"), &script{}, nil, 1); err == nil {
		t.Error("a play with troubles accepted a router that cannot receive failures")
	}
	_, err := New(troubled(t, 1, 1, "d1:fail@0s+1s"), &survivor{}, nil, 1)
	if err == nil || !strings.Contains(err.Error(), "d1") {
		t.Errorf("a trouble of a replica that does not exist: %v", err)
	}
}

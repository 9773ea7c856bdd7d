package top

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/why"
)

// help is what the key ? shows.
const help = `Keys
  1 to 5, tab  fleet, pairs, requests, client keys, classes
  up down      select a row; also k j, page up, page down, home, end
  enter        details of the replica, or why the request went where it went
  s            sort by the next column, marked with a triangle; behind the last: the order of the router
  /            show only rows with these words; esc shows all again
  esc          back
  q            quit

Fleet
  STATE        in use, or why the replica gets fewer requests or none
  KV           share of its KV blocks in use
  RUNNING      requests in its batch, of how many at a time where that is known
  QUEUED       requests that wait in the engine
  OURS         requests of this router there
  TO COMPUTE   prompt tokens queued that are not cached
  FREE BLOCKS  KV blocks that may be promised (decode)
  SPEED        a prompt token of prefill, or a decode step; and how many times the profile that is
  CACHED       share of its KV blocks that the index knows

Client keys
  LIMITED NOW  requests that a limit of the key refused in the last minute
  REQUESTS     and the next three, in tokens: in the last minute, with /H in the last hour
  CACHED       a part of PROMPT

Classes
  REQUESTS     that ended in the last minute; REFUSED: how many with 429
  WITHIN GOALS share of the answers of the last minute

Head
  TTFT         time to first token, of streams; the median
  ITL          inter-token latency: between two tokens behind the first; the median
  prefix hits  possible: share of prompt tokens that the best replica had cached; planned: what the chosen
               replicas had of that; delivered: what their engines reported of that`

// detail is everything that is known of a replica.
func detail(l *page.Live, r *page.Replica) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, why.Plain(fmt.Sprintf(format, args...)))
	}
	row(r.Name, "%s, as of %s", r.Pool, l.Time.Local().Format(time.TimeOnly))
	row("state", "%s", r.Condition.Text)
	for _, s := range r.States {
		row("", "%s since %s: %s", strings.ReplaceAll(s.State, "_", " "),
			s.Since.Local().Format(time.TimeOnly),
			s.Cause)
	}
	row("URL", "%s", r.URL)
	row("requests", "%s running, %s queued in the engine, %s of this router", running(r), count(r.Waiting),
		count(r.Requests))
	row("KV in use", "%s", share(r.Usage))
	if r.Pool == "decode" {
		row("KV blocks", "%s free to promise of %s", count(r.Free), count(r.Capacity))
		row("decode step", "%s, with an empty batch",
			learned(r.Speed.StepMS, "ms", l.Profile.StepMS, r.Speed.Samples))
	} else {
		row("to compute", "%s prompt tokens, done in %s", count(r.Queued), span(r.WaitMS))
		row("prefill", "%s a token", learned(r.Speed.TokenUS, "us", l.Profile.TokenUS, r.Speed.Samples))
	}
	row("index", "%s, %s blocks known", r.Index, count(r.Indexed))
	row("load report", "%s old", span(r.Age))
	_ = w.Flush() // a Builder takes all
	pairsOf(&b, l, r.Name)
	return b.String()
}

// pairsOf lists the pairs that a replica is part of.
func pairsOf(b *strings.Builder, l *page.Live, name string) {
	b.WriteString("\nPairs\n")
	n := 0
	for _, p := range l.Pairs {
		if p.Prefill == name || p.Decode == name {
			n++
			fmt.Fprintf(b, "  %s > %s: %s; %s\n", why.Plain(p.Prefill), why.Plain(p.Decode),
				why.Count(p.Sent, "handoff"), why.Plain(p.Condition.Text))
		}
	}
	if n == 0 {
		b.WriteString("  no handoff yet\n")
	}
}

// learned is a speed beside the profile, which it is where nothing is learned yet.
func learned(is float64, unit string, profile float64, samples int) string {
	if samples == 0 || profile <= 0 {
		return fmt.Sprintf("%s %s (the profile, nothing is learned yet)", digits(is), unit)
	}
	return fmt.Sprintf("%s %s (%s times the profile, learned from %d)", digits(is), unit, digits(is/profile),
		samples)
}

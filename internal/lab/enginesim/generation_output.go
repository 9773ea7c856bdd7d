package enginesim

import (
	"strings"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// absorb adds one output to its sequence. It returns false for outputs after the end: a few may follow a stop
// string.
func (g *generation) absorb(d *delivery) (*sequence, bool) {
	q := &g.seqs[d.seq]
	if q.done {
		return q, false
	}
	if d.out.Reason == core.FinishError && d.out.Finished {
		g.ending.problem = internalError
		g.abort()
		return q, false
	}
	q.cached = d.out.Cached
	before := len(q.text)
	if d.out.Reason != core.FinishAbort {
		q.tokens = append(q.tokens, d.out.Token)
		if !d.out.Stopped && (d.out.Reason != core.FinishStop || d.out.Token != g.eos()) {
			q.text = append(q.text, q.detok.next(d.out.Token)...)
		}
	}
	if d.out.Finished {
		g.finish(q, d)
	}
	g.stopString(q, before)
	return q, true
}

func (g *generation) eos() uint32 {
	if e := g.rank.cfg.EOS; e > 0 {
		return uint32(e)
	}
	return ^uint32(0)
}

func (g *generation) finish(q *sequence, d *delivery) {
	q.done = true
	q.finished.reason = d.out.Reason.String()
	q.params = d.params
	if d.out.Stopped {
		q.finished.stopID, q.finished.byID = d.out.Token, true
	}
	g.open--
	if q.params != nil {
		if _, ok := g.srv.faults.take("null_params", "", g.p.leg()); ok {
			q.params = nil
		}
	}
}

// stopString ends a sequence if its text contains one of the request's stop strings. Of the stop strings that
// ended behind before, the earliest one counts. The text ends before this stop string, or after it if the
// request has include_stop_str_in_output.
func (g *generation) stopString(q *sequence, before int) {
	if len(g.p.stop) == 0 || len(q.tokens) <= g.p.minTokens || len(q.text) == before {
		return
	}
	end, found := len(q.text)+1, ""
	for _, stop := range g.p.stop {
		from := max(0, before-len(stop)+1)
		if i := strings.Index(string(q.text[from:]), stop); stop != "" && i >= 0 && from+i+len(stop) < end {
			end, found = from+i+len(stop), stop
		}
	}
	if found == "" {
		return
	}
	if !g.p.includeStop {
		end -= len(found)
	}
	q.text = q.text[:end]
	q.finished.stop = found
	q.finished.reason = "stop"
	if !q.done {
		q.done = true
		g.open--
		g.rank.abort(q.internal)
	}
}

// last returns the newest token as a list.
func (q *sequence) last() []uint32 { return q.tokens[max(len(q.tokens)-1, 0):] }

// fresh returns the text that may be sent now. While a stop string may still appear, it holds back as many
// characters as may be the start of one.
func (g *generation) fresh(q *sequence) string {
	end := len(q.text)
	if !q.done && !g.p.includeStop {
		hold := 0
		for _, stop := range g.p.stop {
			hold = max(hold, utf8.RuneCountInString(stop)-1)
		}
		for ; hold > 0 && end > 0; hold-- {
			_, n := utf8.DecodeLastRune(q.text[:end])
			end -= n
		}
	}
	if end <= q.sent {
		return ""
	}
	text := string(q.text[q.sent:end])
	q.sent = end
	return text
}

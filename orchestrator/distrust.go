package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tandem/internal/rawjson"
)

// A decode engine that may have read somebody else's blocks has them in its prefix cache, under the hashes of a prompt that they do not belong to: every later
// request that begins with that prompt would be answered wrongly (seen on vLLM 0.32), and the API to empty the cache exists in vLLM's development mode only.
// But vLLM hashes a request's cache_salt into its first block. So whatever goes to such an engine from then on is salted with a number of its own, the era:
// nothing that it has cached before is found again. Only its restart ends that.

// salted puts the era into a JSON body, beside the client's own salt; other bodies stay as they are, and so do those with a salt that no engine takes. Of two
// members of a name engines take the last.
func salted(body []byte, era uint32) []byte {
	end := bytes.LastIndexByte(body, '}')
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if end < 0 || len(trimmed) == 0 || trimmed[0] != '{' {
		return body
	}
	own, members := "", 0
	s := rawjson.Scanner{Data: body}
	for key := range s.Members() {
		value := s.Value()
		members++
		if string(rawjson.Name(key)) != "cache_salt" || string(value) == "null" {
			continue
		}
		if own = rawjson.Text(value); value[0] != '"' || own == "" || strings.ContainsRune(own, utf8.RuneError) {
			return body // which every engine refuses, as the client shall hear
		}
	}
	if s.Err() != nil {
		return body
	}
	out := append(make([]byte, 0, len(body)+len(own)+48), body[:end]...)
	if members > 0 {
		out = append(out, ',')
	}
	out = rawjson.AppendString(append(out, `"cache_salt":`...), own+"\x1ftandem-era-"+strconv.FormatUint(uint64(era), 10))
	return append(out, body[end:]...)
}

// suspect distrusts the decode engine of a split attempt that failed, if it may have read blocks after they had been given away.
func (a *answer) suspect(f *failure) {
	h := a.h
	var still *silent
	switch {
	case !h.lends || f.unused:
	case f.kind == "late", errors.As(f.err, &still) && still.at == a.to.member.ID: // that one may go on in the middle of a read
		a.to.w.distrust(f)
	case h.lent(time.Now()) >= h.cfg.Connector.Lease: // a long queue, or a core that stands still and has not read yet: leases tell
		o := h.j.q.o
		o.returns.Go(func() { // joined by Run, ended by a timeout
			late := true // also where nobody can tell
			o.panics.Contain("distrust", func() {
				now, err := h.askEnds(context.Background())
				late = err != nil || now.expired != h.ends.expired
			})
			if late {
				o.panics.Contain("distrust", func() { a.to.w.distrust(f) })
			}
		})
	}
}

// showTrust tells people whether the engine's cache is used.
func (w *watcher) showTrust() {
	cause := ""
	if w.process.era.Load() > 0 {
		cause = "it may have cached wrong blocks: restart it when you can"
	}
	for _, m := range w.members() {
		w.state(m.ID, stateDistrusted, cause)
	}
}

// distrust makes all that the engine has cached so far unreachable, in whichever pool it stands.
func (w *watcher) distrust(why *failure) {
	era := w.process.era.Add(1)
	for _, x := range w.f.all() {
		if x.process != w.process {
			continue
		}
		for _, m := range x.members() {
			x.f.pool(x.role).Forget(m.ID)
		}
		x.showTrust()
	}
	w.f.o.m.distrusted.WithLabelValues(w.role.String(), w.name()).Inc()
	if era > 1 { // it has been said, and holds until the restart
		w.f.o.log.Debug("a distrusted decode engine may have cached wrong blocks again", "replica", w.name(), "era", era, "error", why)
		return
	}
	w.f.o.log.Error("a decode engine may have cached wrong blocks; its requests are salted until it is restarted, so that it uses none of them: restart it when you can, "+
		"and see that its lease and its machine are not too short of time", "replica", w.name(), "era", era, "error", why)
}

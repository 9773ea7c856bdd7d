package trace

import (
	"cmp"
	"io"
	"slices"
	"time"
)

// lmcache reads agent benchmarks. The calls of a session are spread across the file, so the whole file is
// read before the first session is given out. The file is small.
//
// A call waits for the call before it in its session, and then for the time between their starts in the
// recording. The data does not tell how long a call took.
type lmcache struct {
	lines *lines
	read  bool
	ready []*Session
}

const (
	lmcacheBlock = 16
	maxSessions  = 1 << 20
)

type lmcacheLine struct {
	Group   string   `json:"g"`
	Session string   `json:"s"`
	T       *float64 `json:"t"` // unix s
	In      int      `json:"in"`
	Out     int      `json:"out"`
	IDs     []uint64 `json:"hash_ids"`
}

func (r *lmcache) session() (*Session, error) {
	if !r.read {
		if err := r.all(); err != nil {
			return nil, err
		}
		r.read = true
	}
	if len(r.ready) == 0 {
		return nil, io.EOF
	}
	s := r.ready[0]
	r.ready = r.ready[1:]
	return s, nil
}

// lmcacheCall is a call with its time.
type lmcacheCall struct {
	call Call
	at   float64
}

func (r *lmcache) all() error {
	calls := map[string][]lmcacheCall{}
	var order []string
	for {
		id, c, err := r.call()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if calls[id] == nil {
			order = append(order, id)
		}
		calls[id] = append(calls[id], c)
		if len(order) > maxSessions || len(calls[id]) > maxCalls {
			return r.lines.wrong("s", "too many sessions or calls")
		}
	}
	for _, id := range order {
		r.ready = append(r.ready, lmcacheSession(id, calls[id]))
	}
	return nil
}

func (r *lmcache) call() (string, lmcacheCall, error) {
	var line lmcacheLine
	if err := r.lines.decode(&line); err != nil {
		return "", lmcacheCall{}, err
	}
	switch {
	case line.T == nil:
		return "", lmcacheCall{}, r.lines.wrong("t", "is missing")
	case line.Session == "":
		return "", lmcacheCall{}, r.lines.wrong("s", "is missing")
	}
	if *line.T < 0 || *line.T > 1e11 || *line.T != *line.T {
		return "", lmcacheCall{}, r.lines.wrong("t", "%v is no unix time", *line.T)
	}
	if line.In == 0 { // 53 calls whose prompt was not recorded
		line.In = 1
	}
	c, err := r.lines.flatCall(line.In, line.Out, nil, maxTokens+1, [3]string{"in", "out", "hash_ids"})
	if err != nil {
		return "", lmcacheCall{}, err
	}
	// Lengths are characters/4 and blocks 64 characters, each rounded for itself: one block more or less is no
	// mistake.
	blocks := (c.Input + lmcacheBlock - 1) / lmcacheBlock
	if len(line.IDs) > blocks+1 || len(line.IDs) < blocks-2 {
		return "", lmcacheCall{}, r.lines.wrong("hash_ids", "%d blocks of %d tokens do not make %d tokens",
			len(line.IDs), lmcacheBlock, c.Input)
	}
	c.Asked.Tenant = line.Group
	salt := mixString(0, line.Group)
	c.ids = line.IDs[:min(len(line.IDs), blocks)]
	for i := range c.ids {
		c.ids[i] = mix(salt, c.ids[i])
	}
	return line.Group + "/" + line.Session, lmcacheCall{c, *line.T}, nil
}

func lmcacheSession(id string, calls []lmcacheCall) *Session {
	slices.SortStableFunc(calls, func(a, b lmcacheCall) int { return cmp.Compare(a.at, b.at) })
	s := &Session{ID: id, BlockSize: lmcacheBlock}
	for i, c := range calls {
		c.call.After = i - 1
		if i > 0 {
			c.call.Think = min(time.Duration((c.at-calls[i-1].at)*1e9), maxTime)
		}
		s.Calls = append(s.Calls, c.call)
	}
	return s
}

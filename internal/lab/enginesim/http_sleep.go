package enginesim

import (
	"net/url"
	"strconv"
	"time"
)

// sleepNow answers POST /sleep?level=1, as in vLLM's development mode, when the engine sleeps. It waits for
// leases of finished prefills. The query's mode is treated as "abort", the default.
func (s *Server) sleepNow(k *call) {
	level := 1
	if q, err := url.ParseQuery(k.query); err == nil && q.Has("level") {
		level, _ = strconv.Atoi(q.Get("level"))
	}
	if level < 0 || level > 2 {
		k.fail(422, "UnprocessableEntityError", "level", "level is 0, 1 or 2")
		return
	}
	s.Sleep(level)
	k.part = append(appendInt(append(k.part[:0], `{"status":"sleeping","level":`...), level), '}')
	k.respond(200, jsonType, k.part)
}

// Sleep puts all ranks to sleep and waits until they sleep, or until the server is closed.
func (s *Server) Sleep(level int) {
	s.eachRank(func(r *rank) {
		r.mu.Lock()
		r.core.Sleep(r.now(), level)
		r.poke()
		r.mu.Unlock()
	})
	for !s.asleep() && s.life.ctx.Err() == nil {
		sleep(s.life.ctx, time.Millisecond)
	}
}

func (s *Server) wakeUp(k *call) {
	s.Wake()
	k.respond(200, jsonType, []byte(`{"status":"awake","tags":null}`))
}

// Wake ends the sleep of all ranks.
func (s *Server) Wake() {
	s.eachRank(func(r *rank) {
		r.mu.Lock()
		r.core.Wake()
		r.poke()
		r.mu.Unlock()
	})
}

func (s *Server) isSleeping(k *call) {
	k.part = append(strconv.AppendBool(append(k.part[:0], `{"is_sleeping":`...), s.asleep()), '}')
	k.respond(200, jsonType, k.part)
}

// asleep reports whether all ranks sleep.
func (s *Server) asleep() bool {
	all := true
	s.eachRank(func(r *rank) {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, asleep := r.core.Asleep()
		all = all && asleep
	})
	return all
}

package enginesim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kvevents"
)

type lateBatch struct {
	at    time.Time
	rank  *rank
	batch *kvevents.EncodeBatch
}

// publish sends a batch, or delays or duplicates it as the faults say.
func (f *faults) publish(r *rank, b *kvevents.EncodeBatch) {
	if late := time.Duration(f.late.Load()); late > 0 {
		f.mu.Lock()
		queue := f.delayed
		f.mu.Unlock()
		select {
		case queue <- lateBatch{time.Now().Add(late), r, cloneBatch(b)}:
		default: // 4,096 batches are delayed: the rest is lost, as at a high-water mark
		}
		return
	}
	r.send(b)
	f.mu.Lock()
	again := f.duplicate > 0
	if again {
		f.duplicate--
	}
	f.mu.Unlock()
	if again {
		r.send(b)
	}
}

// send publishes a batch.
func (r *rank) send(b *kvevents.EncodeBatch) {
	if p := r.events.pub.Load(); p != nil {
		p.Publish(b)
	}
}

func cloneBatch(b *kvevents.EncodeBatch) *kvevents.EncodeBatch {
	c := *b
	c.Events = slices.Clone(b.Events)
	for i := range c.Events {
		e := &c.Events[i]
		e.Hashes = slices.Clone(e.Hashes)
		e.Tokens = slices.Clone(e.Tokens)
		e.Extra = slices.Clone(e.Extra)
	}
	return &c
}

// publishLate sends delayed batches in order, each when it is due.
func (s *serverLife) publishLate(queue <-chan lateBatch) {
	for {
		select {
		case l := <-queue:
			sleep(s.ctx, time.Until(l.at))
			l.rank.send(l.batch)
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Server) eventFault(f Fault) error {
	if s.o.EventsEndpoint == "" {
		return fmt.Errorf("fault %q: no such kind, or there are no events", f.Kind)
	}
	switch f.Kind {
	case "drop_events":
		s.eachPublisher(func(p *kvevents.Publisher) { p.Drop(max(f.Count, 1)) })
	case "duplicate_events":
		s.faults.mu.Lock()
		s.faults.duplicate += max(f.Count, 1)
		s.faults.mu.Unlock()
	case "delay_events":
		s.delayEvents(f.For)
	case "pause_events":
		s.eachPublisher((*kvevents.Publisher).Pause)
		if f.For > 0 {
			s.later(f.For, func() { s.eachPublisher((*kvevents.Publisher).Resume) })
		}
	case "resume_events":
		s.eachPublisher((*kvevents.Publisher).Resume)
	case "restart_events":
		s.eachPublisher((*kvevents.Publisher).Restart)
	default:
		return fmt.Errorf("fault %q: no such kind", f.Kind)
	}
	return nil
}

func (s *Server) eachPublisher(do func(*kvevents.Publisher)) {
	s.eachRank(func(r *rank) {
		if p := r.events.pub.Load(); p != nil {
			do(p)
		}
	})
}

func (s *Server) delayEvents(d time.Duration) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if s.faults.delayed == nil {
		queue := make(chan lateBatch, 4096)
		s.faults.delayed = queue
		s.spawn(func() { s.life.publishLate(queue) })
	}
	s.faults.late.Store(int64(d))
}

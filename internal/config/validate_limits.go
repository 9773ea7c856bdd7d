package config

import (
	"fmt"
	"math"
	"time"
)

func (l *Limits) check(ck *checker) {
	ck.size("limits.body_bytes", l.BodyBytes, 1<<10)
	ck.size("limits.header_bytes", l.HeaderBytes, 1<<10)
	ck.size("limits.answer_bytes", l.AnswerBytes, 1<<10)
	ck.between("limits.max_prompt_tokens", l.MaxPromptTokens, 0, math.MaxInt32)
	ck.between("limits.batch_prompts", l.BatchPrompts, 1, 1<<16)
	ck.between("limits.samples", l.Samples, 1, 1<<16)
	ck.between("limits.in_flight", l.InFlight, 0, math.MaxInt32)
	ck.between("limits.queue", l.Queue, 0, math.MaxInt32)
	ck.longer("limits.first_token", l.FirstToken, 0)
	if l.InFlight > 0 && l.Queue > l.InFlight {
		ck.add("limits.queue",
			fmt.Sprintf("%d may wait and only %d may be here at all (limits.in_flight)", l.Queue, l.InFlight),
			"make in_flight the larger one, or 0 for no limit")
	}
}

func (t *Timeouts) check(ck *checker) {
	for _, f := range []struct {
		name string
		got  time.Duration
	}{
		{"read_header", t.ReadHeader},
		{"read_body", t.ReadBody},
		{"idle", t.Idle},
		{"tokenize", t.Tokenize},
		{"queue", t.Queue},
		{"connect", t.Connect},
		{"prefill", t.Prefill},
		{"decode_first", t.DecodeFirst},
		{"decode_idle", t.DecodeIdle},
		{"answer", t.Answer},
		{"client_write", t.ClientWrite},
		{"probe", t.Probe},
	} {
		ck.longer("timeouts."+f.name, f.got, time.Millisecond)
	}
	ck.longer("timeouts.unready", t.Unready, 0)
	ck.longer("timeouts.drain", t.Drain, 0)
	if t.Connect > t.Prefill {
		ck.add("timeouts.connect",
			fmt.Sprintf("%v is longer than timeouts.prefill %v, of which it is a part", t.Connect, t.Prefill),
			"make it shorter")
	}
}

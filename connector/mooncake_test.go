package connector

import (
	"errors"
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

func mooncakePair() Pair {
	p := pair
	p.Prefill.Facts.KV = replica.KVAddress{EngineID: "e1", Bootstrap: "http://10.0.0.7:8998"}
	return p
}

func TestMooncakeGolden(t *testing.T) {
	leg, edit, header := newLeg(t, openai.Completions,
		`{"model":"m","prompt":[1,2],"max_tokens":1,"stop":["x"],"stop_token_ids":[3]}`)
	if err := (Mooncake{}).EditPrefill(leg, mooncakePair()); err != nil || header["X-Request-Id"] != "a1" {
		t.Errorf("prefill: %v, headers %v", err, header)
	}
	golden(t, "mooncake-prefill.golden", edit.Append(nil))

	leg, edit, header = newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2], "max_tokens":64, "stop":["x"]}`)
	err := Mooncake{}.EditDecode(leg, mooncakePair(), nil, inTime)
	if err != nil || header["X-Request-Id"] != "a1" {
		t.Errorf("decode: %v, headers %v", err, header)
	}
	golden(t, "mooncake-decode.golden", edit.Append(nil))

	leg, edit, _ = newLeg(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	leg.ReuseIDs = []byte("[7,8,9]")
	of := mooncakePair()
	of.PromptTokens = 3
	if err := (Mooncake{}).EditDecode(leg, of, nil, inTime); err != nil {
		t.Errorf("decode of a chat: %v", err)
	}
	golden(t, "mooncake-decode-chat.golden", edit.Append(nil))
}

// Leg 2 has all its keys, or is not written. A reply is used once, and only while it is young.
func TestMooncakeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Pair, *Leg){
		"no engine id": func(p *Pair, _ *Leg) { p.Prefill.Facts.KV.EngineID = "" },
		"no address":   func(p *Pair, _ *Leg) { p.Prefill.Facts.KV.Bootstrap = "" },
		"another length": func(p *Pair, l *Leg) {
			p.PromptTokens, l.ReuseIDs = 4, []byte("[7,8,9]")
		},
	} {
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		p := mooncakePair()
		change(&p, leg)
		err := Mooncake{}.EditDecode(leg, p, NewReply(nil, start, 4, 16), inTime)
		if got := string(edit.Append(nil)); !errors.Is(err, ErrInvalidParams) || got != completion {
			t.Errorf("%s: %v, body %s", name, err, got)
		}
	}
	decode := func(reply *Reply, use Use) error {
		leg, _, _ := newLeg(t, openai.Completions, completion)
		return Mooncake{}.EditDecode(leg, mooncakePair(), reply, use)
	}
	reply := NewReply(nil, start, 100, 16)
	if err := decode(reply, Use{Now: start.Add(inTime.margin() + 1)}); !errors.Is(err, ErrExpired) {
		t.Errorf("an old reply: %v", err)
	}
	if err := decode(reply, inTime); err != nil {
		t.Errorf("a good reply: %v", err)
	}
	if err := decode(reply, inTime); !errors.Is(err, ErrTaken) {
		t.Errorf("a reply that was used: %v", err)
	}
	traits := Mooncake{}.Traits()
	empty := NewReply(nil, start, 1, 1)
	if !traits.Returns(empty) || traits.Returns(nil) || (NIXL{}).Traits().Returns(empty) {
		t.Error("what can be given back")
	}
}

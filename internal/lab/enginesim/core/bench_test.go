package core

import (
	"encoding/json"
	"fmt"
	"testing"
)

// A short request on an engine without latency: 128 tokens in, 8 out.
func BenchmarkShortRequest(b *testing.B) {
	e := New(Config{Blocks: 8192})
	ids := prompt(1, 128)
	r := Request{ID: "cmpl-0123456789abcdef-0-01234567", Prompt: ids, MaxTokens: 8}
	b.ReportAllocs()
	n := uint32(0)
	for b.Loop() {
		n++
		ids[20] = n // the first 16 tokens stay cached
		if err := e.Add(0, &r); err != nil {
			b.Fatal(err)
		}
		for !e.Step(0).Idle {
		}
	}
}

// Both legs of a short split request, with the KV transfer between them.
func BenchmarkSplitRequest(b *testing.B) {
	p, d := New(Config{EngineID: "p"}), New(Config{EngineID: "d"})
	ids := prompt(1, 128)
	b.ReportAllocs()
	n := uint32(0)
	for b.Loop() {
		n++
		ids[20] = n
		t := &Transfer{DoRemoteDecode: true}
		p.Add(0, &Request{ID: "p", Prompt: ids, MaxTokens: 1, Transfer: t})
		out := p.Step(0).Outputs[0].Params
		groups := make([]int, len(out.BlockIDs))
		for i, id := range out.BlockIDs {
			groups[i] = int(id)
		}
		t = &Transfer{
			DoRemotePrefill: true, RemoteBlocks: Has(RemoteBlocks{Groups: [][]int{groups}}), EngineID: Has("p"),
			RequestID: Has("p"), Host: Has("h"), Port: Has(json.Number("1")),
		}
		d.Add(0, &Request{ID: "d", Prompt: ids, MaxTokens: 8, Transfer: t})
		o := d.Step(0).Orders[0]
		contents := p.ReadBlocks(o.Blocks)
		p.Notify(0, "p")
		d.Loaded(0, "d", contents, nil)
		for !d.Step(0).Idle {
		}
	}
}

// A full batch of decodes: the time of a step per generated token.
func BenchmarkDecodeStep(b *testing.B) {
	e := New(Config{Blocks: 1 << 16, NoEvents: true})
	for i := range 256 {
		e.Add(0, &Request{ID: fmt.Sprint(i), Prompt: prompt(uint64(i), 100)})
	}
	b.ReportAllocs()
	tokens := 0
	for b.Loop() {
		st := e.Step(0)
		tokens += len(st.Outputs)
		for _, o := range st.Outputs {
			if o.Finished {
				e.Add(0, &Request{ID: o.ID, Prompt: prompt(7, 100)})
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tokens), "ns/token")
}

// A prompt of 131,072 tokens, half of it cached.
func BenchmarkLongPrompt(b *testing.B) {
	e := New(Config{Blocks: 1 << 15, MaxBatchedTokens: 1 << 18})
	ids := prompt(1, 131072)
	b.ReportAllocs()
	n := uint32(0)
	for b.Loop() {
		n++
		ids[65536] = n
		e.Add(0, &Request{ID: "r", Prompt: ids, MaxTokens: 1})
		e.Step(0)
	}
}

package core

import (
	"testing"
	"time"
)

// Two prompts of 40 tokens run on an engine with 24 tokens per step. After the first step one has computed
// 24 tokens, and the other waits.
func TestTasks(t *testing.T) {
	e := New(Config{BlockSize: 8, Blocks: 100, MaxBatchedTokens: 24, Cost: Cost{A: 1e-3}})
	prompt := make([]uint32, 40)
	for i := range prompt {
		prompt[i] = uint32(i)
	}
	for i, id := range []string{"a", "b"} {
		if err := e.Add(0, &Request{ID: id, Prompt: prompt, MaxTokens: 5 + 4*i, IgnoreEOS: true}); err != nil {
			t.Fatal(err)
		}
	}
	hashes := e.AppendHashes(nil, prompt)
	if len(hashes) != 5 || e.Cached(hashes) != 0 || e.FreeBlocks() != 99 {
		t.Fatalf("%d hashes, %d cached, %d free before anything ran", len(hashes), e.Cached(hashes), e.FreeBlocks())
	}
	st := e.Step(0)
	got := e.Tasks(nil)
	want := []Task{
		{ID: "a", Tokens: 40, Computed: 24, Out: 5, Blocks: 3}, {ID: "b", Tokens: 40, Out: 9, Waiting: true},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("tasks %+v\nwant  %+v", got, want)
	}
	if e.Cached(hashes) != 3 || e.FreeBlocks() != 96 {
		t.Errorf("%d blocks cached, %d free while the first step runs", e.Cached(hashes), e.FreeBlocks())
	}
	for at := st.Took; len(e.Tasks(nil)) == 2; at += st.Took {
		if st = e.Step(at); at > time.Second {
			t.Fatal("no request has ended")
		}
	}
	if got := e.Tasks(nil); got[0].ID != "b" || got[0].Tokens-40+got[0].Out != 9 {
		t.Errorf("after the first has ended: %+v", got)
	}
	if e.Cached(hashes) != 5 {
		t.Errorf("%d blocks of the prompt cached, want all", e.Cached(hashes))
	}
}

package tokenizer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pickyEngine renders each chat in ten milliseconds. It refuses a negative temperature, in words that name
// it, and keeps as many tokens of a truncated prompt as max_tokens leaves room for.
func pickyEngine(_ context.Context, _ string, body []byte) (int, []byte, error) {
	time.Sleep(10 * time.Millisecond)
	switch {
	case bytes.Contains(body, []byte(`"temperature":-`)):
		_, at, _ := bytes.Cut(body, []byte(`"temperature":`))
		return 400, fmt.Appendf(nil, `{"error":{"message":"temperature %s","code":400}}`, bytes.TrimRight(at, "}")),
			nil
	case bytes.Contains(body, []byte(`"max_tokens":4000`)):
		return 200, []byte(`{"token_ids":[8,9]}`), nil
	}
	return 200, []byte(`{"token_ids":[1,2,3]}`), nil
}

// together resolves chats at the same moment that have the same prompt and differ in other fields. The first
// chat begins first.
func together(t *testing.T, r *Resolver, fields ...string) []Result {
	t.Helper()
	via := Via{Key: "p0", Post: pickyEngine, Render: true}
	results := make([]Result, len(fields))
	var wg sync.WaitGroup
	for i, more := range fields {
		wg.Go(func() {
			results[i] = r.Chat(t.Context(), via,
				[]byte(`{"model":"m","messages":[{"role":"user","content":"x"}],`+more+`}`))
		})
		synctest.Wait()
	}
	wg.Wait()
	return results
}

// A refusal belongs to the request that was refused. A caller with the same prompt at that moment is refused
// only for what is wrong with its own fields. Such callers do not wait for one after another.
func TestARefusalIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(usual())
		start := time.Now()
		got := together(t, r, `"temperature":-1`, `"temperature":1`, `"temperature":-2`, `"temperature":-3`,
			`"temperature":0.5`)
		for i, want := range []string{"temperature -1", "", "temperature -2", "temperature -3", ""} {
			rejected, refused := errors.AsType[*Rejected](got[i].Err)
			switch {
			case refused != (want != ""), refused && !strings.Contains(string(rejected.Body), want):
				t.Errorf("request %d: %+v, want refusal %q", i, got[i], want)
			case !refused && (!got[i].Exact || got[i].Count != 3):
				t.Errorf("request %d: %+v, want three ids", i, got[i])
			}
		}
		if took := time.Since(start); took != 20*time.Millisecond {
			t.Errorf("took %v, want the refused question and one more at the same time for each", took)
		}
		if got := together(t, r, `"temperature":0.7`)[0]; got.Source != Cache {
			t.Errorf("what was asked alone is not remembered: %+v", got)
		}
	})
}

// Ids that depend on max_tokens too belong to one request.
func TestTruncatedPromptsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const truncated = `"truncate_prompt_tokens":-1,"max_tokens":`
		got := together(t, New(usual()), truncated+`4000`, truncated+`10`)
		if len(got[0].IDs) != 2 || len(got[1].IDs) != 3 {
			t.Errorf("ids %v with max_tokens 4000 and %v with 10; want two and three", got[0].IDs, got[1].IDs)
		}
	})
}

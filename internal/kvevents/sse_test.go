package kvevents

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

// Events are cut as the standard has them: fields in any order, comments, several data lines, \r\n.
func TestServerSentEventsAreCut(t *testing.T) {
	r := newSSEReader(strings.NewReader(": hello\n\nid: 7\nevent: a\ndata: x\n\n" +
		"data:y\r\ndata: z\r\nretry: 5\r\n\r\nevent: nothing\n\nid:8\ndata: w\n"))
	for _, want := range []sseEvent{{"7", "a", []byte("x")}, {"", "", []byte("y\nz")}} {
		if e, err := r.next(); err != nil || !reflect.DeepEqual(e, want) {
			t.Errorf("%+v, %v, want %+v", e, err, want)
		}
	}
	if e, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v of an event that was cut off", e, err)
	}
	for name, text := range map[string]string{
		"a line": "data: " + strings.Repeat("x", maxSSE), "lines": strings.Repeat("data: 123456789\n", maxSSE/8),
	} {
		if _, err := newSSEReader(strings.NewReader(text + "\n\n")).next(); !errors.Is(err, errSSELong) {
			t.Errorf("%s without end: %v", name, err)
		}
	}
}

// What each kind means for the index, and what is refused.
func TestServerSentEventsAreRead(t *testing.T) {
	const hash = `"prefix_hash":"00000000000000ff"`
	const said = `,"token_ids":[1,2],"lora_name":"a","cache_salt":"s"`
	block := []kv.EngineHash{0xff}
	below := kv.Event{Kind: kv.Stored, Hashes: block, Tier: kv.Other, Group: kv.NoGroup}
	here := kv.Event{Kind: kv.Removed, Hashes: block, Group: kv.NoGroup}
	ended := kv.Event{Kind: kv.Removed, Hashes: block, Tier: kv.Other, Group: kv.NoGroup}
	first := kv.Event{
		Kind: kv.Stored, Hashes: block, Tokens: []kv.Token{1, 2}, BlockSize: 2, LoRA: "a", Salt: "s",
		Group: kv.NoGroup,
	}
	again := kv.Event{Kind: kv.Stored, Hashes: block, Group: kv.NoGroup}
	second := first
	second.HasParent, second.Salt = true, ""
	second.Parent = 0xab
	pictured := first
	pictured.Extra = [][]byte{appendExtra(nil, extraRaw, []byte(`["img",3]`))}
	for _, tt := range []struct {
		kind, data string
		want       []kv.Event
		change     bool
		err        error
	}{
		{"cache_created", `{` + hash + said + `,"token_count":2}`, []kv.Event{first}, true, nil},
		{"cache_created", `{` + hash + said + `,"parent_hash":"ab"}`, []kv.Event{second}, true, nil},
		{"", `{"event":"cache_evicted",` + hash + `}`, []kv.Event{here}, true, nil},
		{"message", `{"event":"cache_evicted",` + hash + `}`, []kv.Event{here}, true, nil},
		{"cache_evicted", `{"event":"cache_created",` + hash + `}`, []kv.Event{here}, true, nil},
		{"cache_reloaded", `{` + hash + `}`, []kv.Event{again}, true, nil},
		{"cache_offloaded", `{` + hash + `}`, []kv.Event{below, here}, true, nil},
		{"cache_purged", `{` + hash + `}`, []kv.Event{here, ended}, true, nil},
		{"cache_created", `{` + hash + said + `,"extra_keys":null}`, []kv.Event{first}, true, nil},
		{"cache_created", `{` + hash + said + `,"extra_keys": ["img",3]}`, []kv.Event{pictured}, true, nil},
		{"cache_evicted", `{"prefix_hash":"0xff"}`, []kv.Event{here}, true, nil},
		{"cache_evicted", `{"prefix_hash":"0ff"}`, []kv.Event{here}, true, nil},
		{"cache_of_tomorrow", `{` + hash + `}`, nil, true, errKind},
		{"heartbeat", `no JSON`, nil, false, nil},
		{"", `{"event":"heartbeat"}`, nil, false, nil},
		{"cache_created", `{` + hash + `,"token_count":2}`, nil, true, errNoTokens},
		{"cache_created", `{"token_ids":[1]}`, nil, true, errNoContent},
		{"cache_created", `{` + hash + `,"token_ids":[1],"parent_hash":"x"}`, nil, true, errNoContent},
		{"cache_created", `{` + hash + `,"token_ids":[-1]}`, nil, true, errNotJSON},
		{"cache_evicted", `{"prefix_hash":"0x"}`, nil, true, errNoContent},
		{"cache_evicted", `{`, nil, true, errNotJSON},
		{"", `x`, nil, true, errNotJSON},
	} {
		var b kv.Batch
		e := sseEvent{kind: tt.kind, data: []byte(tt.data)}
		change, err := e.decode(&b)
		if change != tt.change || !errors.Is(err, tt.err) || len(b.Events) != len(tt.want) ||
			len(tt.want) > 0 && !reflect.DeepEqual(b.Events, tt.want) {
			t.Errorf("%s %s: %+v, %v, %v\nwant %+v", tt.kind, tt.data, b.Events, change, err, tt.want)
		}
	}
}

// Whatever comes is cut and read without a panic, in bounded memory, and what is applied names blocks.
func FuzzServerSentEvents(f *testing.F) {
	f.Add([]byte("id: 1\nevent: cache_created\ndata: {\"prefix_hash\":\"ab\",\"token_ids\":[1,2]}\n\n"))
	f.Add([]byte("event: cache_purged\ndata: {\"prefix_hash\":\"ab\"}\n\ndata: {\"event\":\"cache_evicted\"}\n\n"))
	f.Add([]byte("event: cache_created\ndata: {\"prefix_hash\":\"0xa\",\"token_ids\":[1],\"extra_keys\":[[]]}\n\n"))
	f.Add([]byte("data: {\r\ndata: }\r\n\r\nid: 18446744073709551615\ndata: 1\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newSSEReader(strings.NewReader(string(stream)))
		var b kv.Batch
		for {
			e, err := r.next()
			if err != nil {
				return
			}
			if len(e.data) > len(stream) {
				t.Fatalf("%d bytes of %d", len(e.data), len(stream))
			}
			if seq, ok, err := e.number(); ok && (err != nil || seq == endOfReplay) {
				t.Fatalf("number %d, %v", seq, err)
			}
			change, err := e.decode(&b)
			if (err != nil || !change) != (len(b.Events) == 0) || err != nil && !change {
				t.Fatalf("%+v, %v, %v", b.Events, change, err)
			}
			for _, event := range b.Events {
				if len(event.Hashes) != 1 || len(event.Tokens) != event.BlockSize {
					t.Fatalf("%+v", event)
				}
			}
		}
	})
}

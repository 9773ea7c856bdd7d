package kvevents

import (
	"errors"
	"reflect"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

// DecodeHTTP turns each kind of event into changes for the index, or refuses the event.
func TestDecodeHTTP(t *testing.T) {
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
		{"cache_of_tomorrow", `{` + hash + `}`, nil, true, errEventKind},
		{"heartbeat", `no JSON`, nil, false, nil},
		{"", `{"event":"heartbeat"}`, nil, false, nil},
		{"cache_created", `{` + hash + `,"token_count":2}`, nil, true, errNoTokens},
		{"cache_created", `{"token_ids":[1]}`, nil, true, errNoBlock},
		{"cache_created", `{` + hash + `,"token_ids":[1],"parent_hash":"x"}`, nil, true, errNoBlock},
		{"cache_created", `{` + hash + `,"token_ids":[-1]}`, nil, true, errNotJSON},
		{"cache_evicted", `{"prefix_hash":"0x"}`, nil, true, errNoBlock},
		{"cache_evicted", `{`, nil, true, errNotJSON},
		{"", `x`, nil, true, errNotJSON},
	} {
		var b kv.Batch
		change, err := DecodeHTTP(tt.kind, []byte(tt.data), &b)
		if change != tt.change || !errors.Is(err, tt.err) || len(b.Events) != len(tt.want) ||
			len(tt.want) > 0 && !reflect.DeepEqual(b.Events, tt.want) {
			t.Errorf("%s %s: got %+v, %v, %v\nwant %+v", tt.kind, tt.data, b.Events, change, err, tt.want)
		}
	}
}

// DecodeHTTP never panics. Each change has one block with all its tokens.
func FuzzDecodeHTTP(f *testing.F) {
	f.Add("cache_created", []byte(`{"prefix_hash":"ab","token_ids":[1,2]}`))
	f.Add("", []byte(`{"event":"cache_evicted","prefix_hash":"ab"}`))
	f.Add("cache_created", []byte(`{"prefix_hash":"0xa","token_ids":[1],"extra_keys":[[]]}`))
	f.Add("cache_purged", []byte(`{`))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		var b kv.Batch
		about, err := DecodeHTTP(kind, data, &b)
		if (err != nil || !about) != (len(b.Events) == 0) || err != nil && !about {
			t.Fatalf("got events %+v, change %v, error %v, which contradict each other", b.Events, about, err)
		}
		for _, event := range b.Events {
			if len(event.Hashes) != 1 || len(event.Tokens) != event.BlockSize {
				t.Fatalf("got event %+v, want one block with all its tokens", event)
			}
		}
	})
}

package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s (%v)", name, got, want, err)
	}
}

// realParams are vLLM 0.32.0's KV transfer params for a prompt of 100 tokens in blocks of 32.
const realParams = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],` +
	`"remote_engine_id":"6df2bc3d-18dc-41d5-9b1e-baf285660f54","remote_request_id":"cmpl-t-1-0-a8d3f786",` +
	`"remote_host":"127.0.0.1","remote_port":5600,` +
	`"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":100,"remote_blocks_expiry_time":null,` +
	`"transfer_mode":"pull","remote_prefill_cached_tokens":0}`

var (
	start = time.Unix(1_700_000_000, 0)
	pair  = Pair{
		Prefill: replica.Replica{
			ID: "p0", Role: replica.Prefill, Host: "10.0.0.7", Facts: replica.Facts{BlockSize: 32, Blocks: 8191},
		},
		Decode:    replica.Replica{ID: "d0", Role: replica.Decode, Host: "10.0.0.8"},
		AttemptID: "a1", PromptTokens: 100, IDs: true,
	}
	inTime = Use{Now: start.Add(time.Second), Margin: 15 * time.Second}
)

// newLeg makes a leg from a client's body.
func newLeg(t testing.TB, kind openai.Kind, body string) (*Leg, *openai.Edit, map[string]string) {
	t.Helper()
	r, err := openai.Parse(kind, []byte(body), openai.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	edit, header := r.Edit(), map[string]string{}
	return &Leg{Body: edit, SetHeader: func(k, v string) { header[k] = v }}, edit, header
}

const completion = `{"model":"m","prompt":[1,2],"max_tokens":5}`

func ids(n int) []byte {
	return openai.AppendIDs(nil, make([]uint32, n))
}

func TestNIXLGolden(t *testing.T) {
	leg, edit, header := newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2],"max_tokens":1,"temperature":0}`)
	if err := (NIXL{}).EditPrefill(leg, pair); err != nil || header["X-Request-Id"] != "a1" {
		t.Errorf("prefill: %v, headers %v", err, header)
	}
	golden(t, "nixl-prefill.golden", edit.Append(nil))

	leg, edit, header = newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2], "max_tokens":64, "stream":true, "x":1.50}`)
	leg.RequestID = "r1"
	if err := (NIXL{}).EditDecode(leg, pair, NewReply([]byte(realParams), start, 100, 32), inTime); err != nil ||
		header["X-Request-Id"] != "r1" {
		t.Errorf("decode: %v, headers %v", err, header)
	}
	golden(t, "nixl-decode.golden", edit.Append(nil))

	leg, edit, _ = newLeg(t, openai.Chat,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`)
	leg.ReuseIDs = []byte("[7,8,9]")
	chat := pair
	chat.PromptTokens = 3
	params := strings.NewReplacer("[[1,2,3,4]]", "[[17]]", `"remote_num_tokens":100`, `"remote_num_tokens": 3`,
		"127.0.0.1", "10.9.9.9").Replace(realParams)
	if err := (NIXL{}).EditDecode(leg, chat, NewReply([]byte(params), start, 3, 32), inTime); err != nil {
		t.Error(err)
	}
	golden(t, "nixl-decode-chat.golden", edit.Append(nil))
}

// One row for each mistake that crashes, hangs or corrupts a decode engine.
func TestNIXLRefuses(t *testing.T) {
	without := func(key string) string {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(realParams), &m); err != nil || m[key] == nil {
			t.Fatalf("no %s: %v", key, err)
		}
		delete(m, key)
		out, _ := json.Marshal(m)
		return string(out)
	}
	set := func(key, value string) string {
		out := without(key)
		return fmt.Sprintf(`{"%s":%s,%s`, key, value, out[1:])
	}
	set33 := func(generation string) string {
		return fmt.Sprintf(`{"remote_registration_generation":%s,%s`, generation, realParams[1:])
	}
	type row struct{ name, params, field string }
	rows := []row{
		{"nothing", ``, "kv_transfer_params"},
		{"null", `null`, "kv_transfer_params"},
		{"list", `[]`, "kv_transfer_params"},
		{"not JSON", realParams[:len(realParams)-1], "kv_transfer_params"},
		{"more behind", realParams + "1", "kv_transfer_params"},
		{"only the flag", `{"do_remote_prefill":true}`, "remote_block_ids"},
		{"flag false", set("do_remote_prefill", "false"), "do_remote_prefill"},
		{"flag 1", set("do_remote_prefill", "1"), "do_remote_prefill"},
		{"flag null", set("do_remote_prefill", "null"), "do_remote_prefill"},
		{"both flags", set("do_remote_decode", "true"), "do_remote_decode"},
		{"flat block ids", set("remote_block_ids", "[1,2,3,4]"), "remote_block_ids"},
		{"no groups", set("remote_block_ids", "[]"), "remote_block_ids"},
		{"an empty group", set("remote_block_ids", "[[]]"), "remote_block_ids"},
		{"one empty group of two", set("remote_block_ids", "[[1,2,3,4],[]]"), "remote_block_ids"},
		{"block ids are text", set("remote_block_ids", `[["1","2","3","4"]]`), "remote_block_ids"},
		{"a string", set("remote_block_ids", `"1"`), "remote_block_ids"},
		{"negative block id", set("remote_block_ids", "[[1,2,3,-4]]"), "remote_block_ids"},
		{"block id beyond the cache", set("remote_block_ids", "[[1,2,3,8192]]"), "remote_block_ids"},
		{"block id beyond any", set("remote_block_ids", "[[1,2,3,4294967295],[1]]"), "remote_block_ids"},
		{"too few blocks: D dies", set("remote_block_ids", "[[1,2,3]]"), "remote_block_ids"},
		{"too many: wrong text", set("remote_block_ids", "[[1,2,3,4,5]]"), "remote_block_ids"},
		{"too many in one of two groups", set("remote_block_ids", "[[1,2,3,4],[1,2,3,4,5]]"), "remote_block_ids"},
		{"registration null: D dies", set33("null"), "remote_registration_generation"},
		{"registration text: D dies", set33(`"2"`), "remote_registration_generation"},
		{"registration below 0", set33("-1"), "remote_registration_generation"},
		{"port text", set("remote_port", `"5600"`), "remote_port"},
		{"port 0", set("remote_port", "0"), "remote_port"},
		{"port too large", set("remote_port", "65536"), "remote_port"},
		{"port float", set("remote_port", "5600.0"), "remote_port"},
		{"host empty", set("remote_host", `""`), "remote_host"},
		{"host number", set("remote_host", "1"), "remote_host"},
		{"engine empty", set("remote_engine_id", `""`), "remote_engine_id"},
		{"request a list", set("remote_request_id", `["a"]`), "remote_request_id"},
		{"another mode", set("transfer_mode", `"carry"`), "transfer_mode"},
		{"tp text", set("tp_size", `"1"`), "tp_size"},
		{"pp 0", set("pp_size", "0"), "pp_size"},
		{"another prompt's length", set("remote_num_tokens", "84"), "remote_num_tokens"},
		{"longer than the prompt", set("remote_num_tokens", "101"), "remote_num_tokens"},
		{"too many for what is withheld", set("remote_num_tokens", "96"), "remote_block_ids"},
		{"length float", set("remote_num_tokens", "100.0"), "remote_num_tokens"},
		{"the same key twice", `{"remote_port":5600,` + realParams[1:], "remote_port"},
		{"twice, once escaped", `{"remote_p\u006frt":5600,` + realParams[1:], "remote_port"},
		{"ids from an engine", `{"prompt_token_ids":[1],` + realParams[1:], "prompt_token_ids"},
	}
	for _, key := range []string{
		"do_remote_prefill", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host",
		"remote_port",
	} {
		rows = append(rows, row{"without " + key, without(key), key}, row{key + " null", set(key, "null"), key})
	}
	for _, tt := range rows {
		for _, giveBack := range []bool{false, true} {
			leg, edit, _ := newLeg(t, openai.Completions, completion)
			use := inTime
			use.GiveBack = giveBack
			reply := NewReply([]byte(tt.params), start, 100, 32)
			err := NIXL{}.EditDecode(leg, pair, reply, use)
			counts := strings.Contains(tt.name, "too ") && !strings.Contains(tt.name, "port") ||
				tt.field == "remote_num_tokens" && tt.name != "length float" || tt.name == "block id beyond the cache"
			if giveBack && counts {
				if err != nil {
					t.Errorf("%s: cannot be given back: %v", tt.name, err)
				}
				continue
			}
			bad, ok := errors.AsType[*InvalidParams](err)
			if !ok || bad.Field != tt.field || !errors.Is(err, ErrInvalidParams) {
				t.Errorf("%s, give back %v: %v, want one about %s", tt.name, giveBack, err, tt.field)
			}
			if got := string(edit.Append(nil)); got != completion || isTaken(reply) {
				t.Errorf("%s: refused, but the leg or the reply was changed: %s", tt.name, got)
			}
		}
	}
	if err := (NIXL{}).EditDecode(&Leg{}, pair, nil, inTime); !errors.Is(err, ErrInvalidParams) {
		t.Errorf("no reply: %v", err)
	}
}

func TestNIXLAccepts(t *testing.T) {
	swap := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(realParams) }
	for _, tt := range []struct {
		name, params      string
		prompt, blockSize int
		tokens            int
	}{
		{"as captured", realParams, 100, 32, 100},
		{"decode's length unknown", realParams, 100, 32, 0},
		{"prefill's length unknown", realParams, 0, 32, 0},
		{"block size unknown", realParams, 100, 0, 100},
		{
			"0.20: eight keys",
			swap(`,"dcp_size":1,"pp_size":1,"remote_num_tokens":100,"remote_blocks_expiry_time":null,`+
				`"transfer_mode":"pull","remote_prefill_cached_tokens":0`, ""),
			100, 32, 100,
		},
		{
			"the last token is left to decode",
			swap(`"remote_num_tokens":100`, `"remote_num_tokens":96`, "[[1,2,3,4]]", "[[1,2,3]]"), 97, 32, 97,
		},
		{"a sliding window holds fewer", swap("[[1,2,3,4]]", "[[1,2,3,4],[9]]"), 100, 32, 100},
		{"unknown keys", `{"first_gen_token_ids":[5], "x":{"y":1.50e1},` + realParams[1:], 100, 32, 100},
	} {
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		p := pair
		p.PromptTokens = tt.tokens
		p.Prefill.Facts.BlockSize = 0
		p.Prefill.Host = "localhost"
		if err := (NIXL{}).EditDecode(leg, p, NewReply([]byte(tt.params), start, tt.prompt, tt.blockSize),
			inTime); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		sent := strings.Replace(tt.params, `"remote_prefill_cached_tokens":0`,
			`"remote_prefill_cached_tokens":null`, 1)
		if want := completion[:len(completion)-1] + `,"kv_transfer_params":` + sent +
			"}"; string(edit.Append(nil)) != want {
			t.Errorf("%s: other bytes changed: %s", tt.name, edit.Append(nil))
		}
	}
}

func TestNIXLLegsOfDifferentLength(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tokens int
		reuse  []byte
		field  string
	}{
		{"longer on decode", 101, nil, "prompt_tokens"},
		{"shorter on decode", 99, nil, "prompt_tokens"},
		{"fewer ids to reuse", 100, ids(99), "prompt_token_ids"},
		{"more ids", 0, ids(101), "prompt_token_ids"},
		{"no ids", 100, []byte("[]"), "prompt_token_ids"},
		{"ids that are none", 100, []byte(`["a"]`), "prompt_token_ids"},
		{"ids and more", 100, append(ids(100), `,"x":1`...), "prompt_token_ids"},
		{"as many", 100, ids(100), ""},
	} {
		leg, _, _ := newLeg(t, openai.Completions, completion)
		p := pair
		p.PromptTokens, leg.ReuseIDs = tt.tokens, tt.reuse
		err := NIXL{}.EditDecode(leg, p, NewReply([]byte(realParams), start, 100, 32), inTime)
		if bad, _ := errors.AsType[*InvalidParams](err); (err == nil) != (tt.field == "") ||
			bad != nil && bad.Field != tt.field {
			t.Errorf("%s: %v, want one about %q", tt.name, err, tt.field)
		}
	}
}

func TestRemoteHost(t *testing.T) {
	for _, tt := range []struct{ remote, prefill, want string }{
		{"127.0.0.1", "10.0.0.7", "10.0.0.7"},
		{"localhost", "p0.example", "p0.example"},
		{"LOCALHOST.", "p0", "p0"},
		{"0.0.0.0", "10.0.0.7", "10.0.0.7"},
		{"::1", "[fd00::7]", "fd00::7"},
		{"::", "10.0.0.7", "10.0.0.7"},
		{"127.5.0.1", "10.0.0.7", "10.0.0.7"},
		{"::ffff:127.0.0.1", "p", "p"},
		{"10.1.1.1", "10.0.0.7", ""},
		{"p0-rdma", "p0", ""},
		{"127.0.0.1", "127.0.0.1", ""},
		{"0.0.0.0", "localhost", ""},
		{"localhost", "::1", ""},
		{"127.0.0.1", "", ""},
	} {
		if got := hostFor(tt.remote, tt.prefill); got != tt.want {
			t.Errorf("hostFor(%q, %q) = %q, want %q", tt.remote, tt.prefill, got, tt.want)
		}
	}
}

func TestReplyAge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		age    time.Duration
		margin time.Duration
		back   bool
		want   error
	}{
		{"young", 14 * time.Second, 15 * time.Second, false, nil},
		{"at the margin", 15 * time.Second, 15 * time.Second, false, nil},
		{"past it", 15*time.Second + 1, 15 * time.Second, false, ErrExpired},
		{"by default half a lease", 15*time.Second + 1, 0, false, ErrExpired},
		{"given back", time.Minute, 15 * time.Second, true, nil},
		{"a clock that went back", -time.Minute, 15 * time.Second, false, nil},
	} {
		leg, _, _ := newLeg(t, openai.Completions, completion)
		reply := NewReply([]byte(realParams), start, 100, 32)
		use := Use{Now: start.Add(tt.age), Margin: tt.margin, GiveBack: tt.back}
		if err := (NIXL{}).EditDecode(leg, pair, reply, use); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if isTaken(reply) != (tt.want == nil) {
			t.Errorf("%s: taken %v", tt.name, isTaken(reply))
		}
	}
}

func TestExpiredCanStillBeGivenBack(t *testing.T) {
	leg, _, _ := newLeg(t, openai.Completions, completion)
	reply := NewReply([]byte(realParams), start, 100, 32)
	late := Use{Now: start.Add(time.Hour), Margin: 15 * time.Second}
	if err := (NIXL{}).EditDecode(leg, pair, reply, late); !errors.Is(err, ErrExpired) {
		t.Fatal(err)
	}
	late.GiveBack = true
	if err := (NIXL{}).EditDecode(leg, pair, reply, late); err != nil {
		t.Fatal(err)
	}
	if err := (NIXL{}).EditDecode(leg, pair, reply, late); !errors.Is(err, ErrTaken) {
		t.Errorf("a second time: %v", err)
	}
}

func TestReplyIsTakenOnce(t *testing.T) {
	params := []byte(realParams)
	reply := NewReply(params, start, 100, 32)
	clear(params) // the reply has its own copy
	var took atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		wg.Go(func() {
			err := NIXL{}.EditDecode(leg, pair, reply, inTime)
			if carries := bytes.Contains(edit.Append(nil), []byte("remote_engine_id")); carries != (err == nil) {
				t.Errorf("error %v, but the body has params: %v", err, carries)
			}
			switch {
			case err == nil:
				took.Add(1)
			case !errors.Is(err, ErrTaken):
				t.Error(err)
			}
		})
	}
	if wg.Wait(); took.Load() != 1 {
		t.Errorf("taken %d times", took.Load())
	}
}

func TestOrder(t *testing.T) {
	if got := (NIXL{}).Traits().Order.String() + " " + Concurrent.String(); got != "sequential concurrent" {
		t.Errorf("orders %s", got)
	}
}

// Params that are accepted are an object that encoding/json reads as complete.
func FuzzNIXL(f *testing.F) {
	f.Add([]byte(realParams), 100, 32)
	f.Add([]byte(`{"do_remote_prefill":true,"remote_block_ids":[[1],[2]],"remote_engine_id":"a",`+
		`"remote_request_id":"b","remote_host":"::1","remote_port":1}`), 5, 16)
	f.Fuzz(func(t *testing.T, params []byte, prompt, blockSize int) {
		body := &lastSet{}
		reply := NewReply(params, start, prompt, blockSize)
		p := pair
		p.PromptTokens = 0
		if err := (NIXL{}).EditDecode(&Leg{Body: body, ReuseIDs: ids(max(1, min(prompt, 1000)))}, p, reply,
			inTime); err != nil {
			return
		}
		var got struct {
			Prefill  bool       `json:"do_remote_prefill"`
			Decode   bool       `json:"do_remote_decode"`
			Blocks   [][]uint32 `json:"remote_block_ids"`
			Engine   string     `json:"remote_engine_id"`
			Request  string     `json:"remote_request_id"`
			Host     string     `json:"remote_host"`
			Port     int        `json:"remote_port"`
			IDs      []uint32   `json:"prompt_token_ids"`
			Mode     *string    `json:"transfer_mode"`
			Numbered *int       `json:"remote_num_tokens"`
		}
		if err := json.Unmarshal(body.value, &got); err != nil {
			t.Fatalf("%v: %s", err, body.value)
		}
		if !got.Prefill || got.Decode || len(got.Blocks) == 0 || got.Engine == "" || got.Request == "" ||
			got.Host == "" || got.Port < 1 || got.IDs == nil || got.Mode != nil && *got.Mode != "pull" {
			t.Fatalf("incomplete: %s", body.value)
		}
		for _, group := range got.Blocks {
			if len(group) == 0 {
				t.Fatalf("empty group: %s", body.value)
			}
		}
	})
}

type lastSet struct{ value []byte }

func (l *lastSet) Set(_ string, value []byte) { l.value = value }
func (l *lastSet) Delete(string)              { l.value = nil }

func BenchmarkEditDecode(b *testing.B) {
	blocks := openai.AppendIDs(nil, make([]uint32, 8192))
	params := []byte(strings.NewReplacer("[1,2,3,4]", string(blocks), `:100`, `:131072`).Replace(realParams))
	p := pair
	p.PromptTokens = 131072
	b.ReportAllocs()
	for b.Loop() {
		leg := &Leg{Body: &lastSet{}}
		if err := (NIXL{}).EditDecode(leg, p, NewReply(params, start, 131072, 16), inTime); err != nil {
			b.Fatal(err)
		}
	}
}

// A decode leg whose connection was refused leaves the blocks on the prefill engine. They can be given
// back, but not used.
func TestReplyOfALegThatNeverLeft(t *testing.T) {
	reply := NewReply([]byte(realParams), start, 100, 32)
	edit := func(u Use) error {
		leg, _, _ := newLeg(t, openai.Completions, completion)
		return NIXL{}.EditDecode(leg, pair, reply, u)
	}
	giveBack := Use{Now: start.Add(time.Hour), GiveBack: true}
	if err := edit(inTime); err != nil {
		t.Fatalf("first use: %v", err)
	}
	if err := edit(giveBack); !errors.Is(err, ErrTaken) {
		t.Fatalf("give back while the leg may be on its way: %v, want ErrTaken", err)
	}
	reply.Unsent()
	if err := edit(inTime); !errors.Is(err, ErrTaken) {
		t.Errorf("second use: %v, want ErrTaken", err)
	}
	if err := edit(giveBack); err != nil {
		t.Errorf("give back: %v", err)
	}
	if err := edit(giveBack); !errors.Is(err, ErrTaken) {
		t.Errorf("second give back: %v, want ErrTaken", err)
	}
}

// isTaken reports whether the params were taken. If not, the prefill engine still holds the blocks.
func isTaken(r *Reply) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == taken || r.state == spent
}

// BenchmarkEditDecodeShort measures a short prompt, the most frequent case.
func BenchmarkEditDecodeShort(b *testing.B) {
	raw := []byte(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4,5,6,7,8,9,` +
		`10,11,12,13,14,15,16,17,18,19]],` +
		`"remote_engine_id":"6df2bc3d-18dc-41d5-9b1e-baf285660f54","remote_request_id":"cmpl-1-0-ae346bc9",` +
		`"remote_host":"127.0.0.1",` +
		`"remote_port":5600,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":300,` +
		`"remote_blocks_expiry_time":null,` +
		`"transfer_mode":"pull","remote_prefill_cached_tokens":288}`)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		reply := NewReply(raw, now, 300, 16)
		if err := (NIXL{}).EditDecode(&Leg{Body: &lastSet{}}, Pair{PromptTokens: 300}, reply,
			Use{Now: now}); err != nil {
			b.Fatal(err)
		}
	}
}

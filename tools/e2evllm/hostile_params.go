package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// hostileCase is one harmful request, or one that harms only behind a careless front.
type hostileCase struct {
	group string
	name  string
	path  string
	raw   []byte // everything that goes over the connection
	half  bool   // the client's side is closed after writing
	clean string // a body whose answer from one engine is right; "" if only a refusal is right
	loose bool   // a refusal is right, too
	names string // field that a refusal names, "" for none
}

// message of HTTP with a body, on a connection that ends after it.
func posted(path, body string, fields ...string) []byte {
	var head strings.Builder
	head.WriteString(fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: tandem.test\r\nConnection: close\r\nContent-Length: %d\r\n", path,
		len(body),
	))
	typed := false
	for _, f := range fields {
		typed = typed || strings.HasPrefix(f, "Content-Type:")
		head.WriteString(f + "\r\n")
	}
	if !typed {
		head.WriteString("Content-Type: application/json\r\n")
	}
	return []byte(head.String() + "\r\n" + body)
}

// Other paths that take a prompt.
const (
	messagesPath  = "/v1/messages"
	responsesPath = "/v1/responses"
)

var splitPaths = []string{completions, chat, messagesPath, responsesPath}

// validBodies makes valid bodies, each with a new prompt of about three blocks.
type validBodies struct{ g *generator }

func newValidBodies(seed uint64) validBodies {
	return validBodies{&generator{rnd: rand.New(rand.NewPCG(seed, 11))}}
}

func (in validBodies) quoted(words int) string { return asJSON(in.g.text(words)) }

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// members is the inside of such a body for a path.
func (in validBodies) members(path string) string {
	turn := func() string { return `[{"role":"user","content":` + in.quoted(24) + `}]` }
	const some = `"model":"` + modelName + `","temperature":0`
	switch path {
	case completions:
		return some + `,"max_tokens":3,"prompt":` + asJSON(in.g.ids(2*blockTokens+9))
	case responsesPath, "/v1/responses/render":
		return some + `,"max_output_tokens":3,"input":` + in.quoted(24)
	case "/v1/chat/completions/batch":
		return some + `,"max_tokens":3,"messages":[` + turn() + `,` + turn() + `]`
	case "/inference/v1/generate":
		return `"model":"` + modelName + `","token_ids":` + asJSON(in.g.ids(2*blockTokens+9)) +
			`,"sampling_params":{"max_tokens":3,"temperature":0}`
	case "/tokenize", "/v1/completions/render":
		return `"model":"` + modelName + `","prompt":` + in.quoted(24)
	case "/detokenize":
		return `"model":"` + modelName + `","tokens":` + asJSON(in.g.ids(9))
	case "/v1/embeddings", "/pooling", "/classify":
		return `"model":"` + modelName + `","input":` + in.quoted(9)
	case "/score", "/v1/score":
		return `"model":"` + modelName + `","text_1":` + in.quoted(9) + `,"text_2":` + in.quoted(9)
	case "/rerank", "/v1/rerank", "/v2/rerank":
		return `"model":"` + modelName + `","query":` + in.quoted(9) + `,"documents":[` + in.quoted(9) + `]`
	case "/v1/chat/completions/derender", "/v1/completions/derender":
		return `"model":"` + modelName +
			`","generate_response":{"request_id":"a",` +
			`"choices":[{"index":0,"token_ids":[9,8],"finish_reason":"stop"}]}`
	}
	return some + `,"max_tokens":3,"messages":` + turn()
}

// passPaths are paths beside the split ones that a front may pass to an engine.
var passPaths = []string{
	"/v1/chat/completions/batch", "/inference/v1/generate", "/v1/embeddings", "/pooling", "/classify",
	"/score",
	"/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
	"/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/chat/completions/render",
	"/v1/completions/render", "/v1/responses/render", "/v1/messages/render",
	"/v1/chat/completions/derender", "/v1/completions/derender",
}

// badParams is a value of kv_transfer_params.
type badParams struct{ name, value string }

// deadly crashes a decode engine that gets it.
const deadly = `{"do_remote_prefill":true}`

// stolenKinds are the parameters of a real prefill, unchanged and damaged in each way.
//
// Long: a row a kind.
func stolenKinds(stolen map[string]any) []badParams {
	with := func(changes map[string]any) string {
		m := maps.Clone(stolen)
		maps.Copy(m, changes)
		return asJSON(m)
	}
	kinds := []badParams{
		{"another prompt's, whole", asJSON(stolen)},
		{"another prompt's, both directions", with(map[string]any{"do_remote_decode": true})},
	}
	for _, key := range []string{
		"remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size",
		"remote_num_tokens",
	} {
		m := maps.Clone(stolen)
		delete(m, key)
		kinds = append(kinds, badParams{"without " + key, asJSON(m)},
			badParams{key + " null", with(map[string]any{key: nil})})
	}
	for _, change := range []struct {
		key   string
		value any
	}{
		{"remote_block_ids", []any{}},
		{"remote_block_ids", [][]int{{}}},
		{"remote_block_ids", []int{1, 2, 3}},
		{"remote_block_ids", [][]int{{1}}},
		{"remote_block_ids", [][]int{{1, 2, 3, 4, 5, 6, 7, 8, 9}}},
		{"remote_block_ids", [][]int{{1, 2, 3}, {1, 2, 3}}},
		{"remote_block_ids", [][]int{{-1, 1 << 40, 7}}},
		{"remote_block_ids", "[[1,2,3]]"},
		{"remote_block_ids", [][]string{{"a", "b", "c"}}},
		{"remote_block_ids", map[string]int{"0": 1}},
		{"remote_engine_id", "00000000-0000-0000-0000-000000000000"},
		{"remote_engine_id", 7},
		{"remote_engine_id", strings.Repeat("e", 5000)},
		{"remote_request_id", "cmpl-nobody-0-00000000"},
		{"remote_request_id", []int{1}},
		{"remote_host", "hostile.invalid"},
		{"remote_host", "192.0.2.1"},
		{"remote_host", 5},
		{"remote_port", 1},
		{"remote_port", "x"},
		{"remote_port", -1},
		{"remote_port", 1e15},
		{"tp_size", 0},
		{"tp_size", 8},
		{"tp_size", "two"},
		{"dcp_size", 2},
		{"pp_size", 2},
		{"transfer_mode", "push"},
		{"transfer_mode", 3},
		{"remote_num_tokens", -1},
		{"remote_num_tokens", 1 << 40},
		{"remote_prefill_cached_tokens", 999999},
		{"remote_prefill_cached_tokens", "all"},
		{"remote_blocks_expiry_time", 1},
		{"do_remote_prefill", "true"},
		{"do_remote_prefill", 1},
		{"do_remote_prefill", []any{}},
		{"prompt_token_ids", []int{1, 2, 3}},
	} {
		kinds = append(kinds, badParams{
			change.key + " " + shorten(asJSON(change.value)), with(map[string]any{change.key: change.value}),
		})
	}
	return kinds
}

func shorten(s string) string { return s[:min(len(s), 30)] }

// shapeKinds need no real prefill.
func shapeKinds() []badParams {
	values := []string{
		deadly, `{"do_remote_decode":true}`, `{"do_remote_prefill":true,"do_remote_decode":true}`,
		`{"do_remote_prefill":true,"remote_block_ids":[[1,2,3]]}`,
		`{"do_remote_prefill":true,"do_remote_prefill":false,"do_remote_prefill":true}`,
		`{"do_remote_pre\u0066ill":true}`, `{}`, `[]`, `null`, `true`, `0`, `1e400`, `""`,
		`"{\"do_remote_prefill\":true}"`, `[{"do_remote_prefill":true}]`, `[["do_remote_prefill",true]]`,
		`{"kv_transfer_params":{"do_remote_prefill":true}}`,
		`{"prompt_token_ids":[1,2,3]}`, `{"prompt_token_ids":[]}`, `{"prompt_token_ids":[-1]}`,
		`{"prompt_token_ids":[999999999]}`, `{"prompt_token_ids":"1,2"}`,
		`{"kv_load_tiers":["x"]}`,
		`{"remote_prefiller":{"kv_request_id":"a","remote_host":"192.0.2.1","remote_port":1}}`,
		`{"remote_decoder":{"kv_request_id":"a"}}`,
		`{"remote_kv_source":{"kv_request_id":"a","remote_host":"192.0.2.1","remote_port":1}}`,
		`{"transfer_id":"a","remote_bootstrap_addr":"http://192.0.2.1:1"}`,
		`{"do_remote_decode":true,"remote_block_ids":[[1]],"remote_engine_id":"a","remote_request_id":"b",` +
			`"remote_host":"192.0.2.1","remote_port":1}`,
		`{"a":` + strings.Repeat(`[`, 50) + strings.Repeat(`]`, 50) + `,"do_remote_prefill":true}`,
	}
	var kinds []badParams
	for _, v := range values {
		kinds = append(kinds, badParams{shorten(v), v})
	}
	return kinds
}

// spelling writes a value into a body in one way. clean is the body without the parts that an engine must not
// see.
type spelling struct{ name, member, clean string }

// Spellings of %s, the value. Names that are only similar mean nothing to an engine, and may stay.
var spellings = []spelling{
	{"plain", `"kv_transfer_params":%s`, ``},
	{"of encoders", `"ec_transfer_params":%s`, ``},
	{"both", `"ec_transfer_params":%s,"kv_transfer_params":%[1]s`, ``},
	{"twice", `"kv_transfer_params":null,"kv_transfer_params":%s`, ``},
	{"twice, the harmless last", `"kv_transfer_params":%s,"kv_transfer_params":null`, ``},
	{"first letter escaped", `"\u006bv_transfer_params":%s`, ``},
	{"wholly escaped", `"` + escaped("kv_transfer_params") + `" : %s`, ``},
	{"plain and escaped", `"kv_transfer_params":{},"kv\u005Ftransfer_param\u0073":%s`, ``},
	{"with blanks", "\n\t \"kv_transfer_params\" \r\n:\t%s ", ``},
	{"in vllm_xargs", `"vllm_xargs":{"kv_transfer_params":%s}`, `"vllm_xargs":{}`},
	{
		"in vllm_xargs, escaped, among others", `"vllm_xargs":{"a":1,"kv_transfer\u005fparams":%s,"b":"c"}`,
		`"vllm_xargs":{"a":1,"b":"c"}`,
	},
	{"in vllm_xargs, named by an escape", `"vllm\u005fxargs":{"kv_transfer_params":%s}`, `"vllm_xargs":{}`},
	{
		"in vllm_xargs, as text",
		`"vllm_xargs":{"kv_transfer_params":"{\"do_remote_prefill\":true}","unused":"%.0s"}`,
		`"vllm_xargs":{"unused":""}`,
	},
	{"in extra_args", `"extra_args":{"kv_transfer_params":%s}`, `"extra_args":{}`},
	{"in extra_body", `"extra_body":{"kv_transfer_params":%s}`, `"extra_body":{}`},
	{
		"in extra_args of sampling_params",
		`"sampling_params":{"max_tokens":3,"temperature":0,"extra_args":{"kv_transfer_params":%s}}`,
		`"sampling_params":{"max_tokens":3,"temperature":0,"extra_args":{}}`,
	},
	{"in an array", `"unknown":[[{"kv_transfer_params":%s}]]`, `"unknown":[[{}]]`},
	{"in metadata", `"metadata":{"kv_transfer_params":%s}`, `"metadata":{}`},
	{"in capitals", `"KV_TRANSFER_PARAMS":%s`, ``},
	{"in camel case", `"kvTransferParams":%s`, ``},
	{"with hyphens", `"kv-transfer-params":%s`, ``},
	{"with a blank in the name", `"kv_transfer_params ":%s," kv_transfer_params":%[1]s`, ``},
	{"with a NUL in the name", `"kv_transfer_params\u0000":%s`, ``},
	{"with a letter of another script", `"к` + `v_transfer_params":%s`, ``},
	{
		"of derendering", `"generate_responses":[{"request_id":"a","choices":[],"kv_transfer_params":%s}]`,
		`"generate_responses":[{"request_id":"a","choices":[]}]`,
	},
}

func escaped(s string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

func (sp spelling) put(value string) string { return fmt.Sprintf(sp.member, value) }

// whole is the part of a body that sends a request whole to one engine, or as several pairs of legs.
var forms = []struct{ name, path, more string }{
	{"echo", completions, `,"echo":true`},
	{"n = 2", completions, `,"n":2,"temperature":0.7,"seed":5`},
	{"prompt_logprobs", completions, `,"prompt_logprobs":1`},
	{"chat, n = 2", chat, `,"n":2,"temperature":0.7,"seed":6`},
	{
		"batch of two lengths", completions,
		`,"prompt":[[11,12,13,14,15],[21,22,23,24,25,26,27,28,29,30,31,32,` +
			`33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50]]`,
	},
	{"batch of equal lengths", completions, `,"prompt":[[51,52,53,54,55,56],[61,62,63,64,65,66]]`},
	{"batch of texts", completions, `,"prompt":["one","two two two two"]`},
	{"background", responsesPath, `,"background":false,"store":false`},
}

// paramsCases are clients' transfer parameters of every kind, spelling and place. stolen are the parameters
// of a real prefill that no request has used.
func paramsCases(stolen map[string]any) []hostileCase {
	var cases []hostileCase
	in := newValidBodies(1)
	add := func(name, path string, k badParams, sp spelling, more string) {
		members := in.members(path)
		c := hostileCase{group: "params", name: fmt.Sprintf("%s, %s, %s", name, sp.name, k.name), path: path}
		c.raw = posted(path, "{"+join(sp.put(k.value), members)+more+"}")
		c.clean = "{" + join(sp.clean, members) + more + "}"
		cases = append(cases, c)
	}
	stream := func(i int) string {
		if i%2 == 1 {
			return `,"stream":true`
		}
		return ""
	}
	kinds := append(shapeKinds(), stolenKinds(stolen)...)
	for i, k := range kinds { // every kind on completions, and on one of the others
		for j, path := range []string{completions, splitPaths[1+i%3]} {
			add("split", path, k, spellings[0], stream(i+j))
		}
	}
	for i, sp := range spellings[1:] {
		for j, path := range splitPaths {
			add("split", path, badParams{"deadly", deadly}, sp, stream(i+j))
		}
	}
	for i, f := range forms {
		for j := range 3 {
			add(f.name, f.path, kinds[(5*i+7*j)%len(kinds)], spellings[(3*i+j)%18], f.more+stream(i+j))
		}
	}
	for i, path := range passPaths {
		for j, sp := range []int{0, 5, 9, 15} {
			add("passed", path, kinds[(11*i+j)%len(kinds)], spellings[sp], "")
		}
	}
	return cases
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "," + b
}

package connector

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// nixlParams is a prefill engine's account of where its blocks are. Every check below stands for a row of
// the list of params that end, hang or corrupt a decode engine (vLLM 0.32: nixl/pull_scheduler.py,
// metadata.py, base_worker.py).
type nixlParams struct {
	mode    *nixlMode // the expected one
	raw     []byte
	host    string
	at      places
	blocks  blockGroups
	tokens  int    // remote_num_tokens, -1 when not said
	moves   string // transfer_mode
	pulls   bool   // do_remote_prefill
	decodes bool   // do_remote_decode
	engine  string // remote_engine_id
}

// places is where the members stand in raw, to be edited or left out.
type places struct {
	hostAt [2]int        // of the value with its quotes
	hitAt  [2]int        // of the value of remote_prefill_cached_tokens, zero where it is not there
	keys   []judgement   // of the members, in their order
	few    [16]judgement // memory of keys, enough for the usual params
	inside int           // where members begin
}

// blockGroups is which blocks they name, by KV cache group.
type blockGroups struct {
	groups  []int  // blocks in each KV cache group
	few     [4]int // memory of groups, which are one nearly always
	highest uint32 // block id
}

// required are the keys that a decode engine needs. Without any one key it hangs for ever or dies.
var required = [...]string{
	"do_remote_prefill", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host",
	"remote_port",
}

// readAll reads raw into p, which has only its mode, and refuses params that no decode engine may see for any
// request. The error for params of another protocol explains more than a missing key, so it comes first.
func (p *nixlParams) readAll(raw []byte) error {
	p.raw, p.tokens = raw, -1
	p.at.keys = p.at.few[:0]
	s := rawjson.Scanner{Data: raw}
	if s.Peek() != '{' {
		return &InvalidParams{paramsKey, "are not an object"}
	}
	var bad error
	p.at.inside = s.Pos + 1
	for key := range s.Members() {
		judged := judge(key)
		name := judged.key
		if bad == nil && p.at.has(name) {
			bad = &InvalidParams{name, "is there twice"}
		}
		if p.at.keys = append(p.at.keys, judged); len(p.at.keys) > mostParams {
			return &InvalidParams{paramsKey, "are too many"}
		}
		s.Peek()
		at := s.Pos
		value := s.Value()
		if s.Err() != nil {
			break
		}
		if reason := p.read(name, value, at); reason != "" && bad == nil {
			bad = &InvalidParams{name, reason}
		}
	}
	if s.End(); s.Err() != nil {
		return &InvalidParams{paramsKey, "are not JSON"}
	}
	return cmp.Or(p.foreign(), bad, p.complete())
}

// mostParams bounds the members: every member is compared with all before it.
const mostParams = 1000

// has reports whether a member of this name has been read.
func (p *places) has(name string) bool {
	return slices.ContainsFunc(p.keys, func(k judgement) bool { return k.key == name })
}

// foreign refuses params of another protocol, or of the other mode. Engines before 0.32 pull and do not say
// so.
func (p *nixlParams) foreign() error {
	if err := p.mode.foreignKey(p.at.keys); err != nil {
		return err
	}
	if p.moves == p.mode.other || p.moves == "" && p.mode == pushes && p.at.has("remote_engine_id") {
		return p.mode.foreign("NIXL "+p.mode.other, "transfer_mode")
	}
	return nil
}

// complete demands the required keys; read has seen to it that they are not null.
func (p *nixlParams) complete() error {
	for _, name := range required {
		if !p.at.has(name) {
			return &InvalidParams{name, "is missing"}
		}
	}
	if p.mode == pushes && !p.at.has("tp_size") { // D would end
		return &InvalidParams{"tp_size", "is missing"}
	}
	if !p.pulls {
		return &InvalidParams{"do_remote_prefill", "is not true"}
	}
	if p.decodes {
		return &InvalidParams{"do_remote_decode", "is true"}
	}
	return nil
}

// read reads one member and returns why it must not be sent, or "".
//
// Long: a case a key.
func (p *nixlParams) read(name string, value []byte, at int) string {
	switch name {
	case "do_remote_prefill":
		return boolean(&p.pulls, value)
	case "do_remote_decode":
		if string(value) == "null" {
			return ""
		}
		return boolean(&p.decodes, value)
	case "remote_block_ids":
		return p.blocks.blockIDs(value)
	case "remote_engine_id":
		p.engine = rawjson.Text(value)
		return nonEmpty(value)
	case "remote_request_id":
		return nonEmpty(value)
	case "remote_host":
		p.host, p.at.hostAt = rawjson.Text(value), [2]int{at, at + len(value)}
		return nonEmpty(value)
	case "remote_port":
		return between(value, 1, 65535)
	case "tp_size":
		if p.mode == pushes {
			return between(value, 1, 1<<16)
		}
		return optional(value, 1, 1<<16)
	case "dcp_size", "pp_size":
		return optional(value, 1, 1<<16)
	case "remote_prefill_cached_tokens":
		p.at.hitAt = [2]int{at, at + len(value)}
		return optional(value, 0, 1<<31-1)
	case "remote_num_tokens":
		return p.numTokens(value)
	case "remote_registration_generation":
		// A decode engine of vLLM 0.33 compares the value with a number, and ends on null or text.
		return between(value, 0, 1<<31-1)
	case "transfer_mode":
		if string(value) == "null" {
			return ""
		}
		if p.moves = rawjson.Text(value); p.moves != p.mode.name {
			return "is not " + p.mode.name
		}
	case "prompt_token_ids":
		return "is not for an engine to return"
	}
	return ""
}

func boolean(to *bool, value []byte) string {
	*to = string(value) == "true"
	if !*to && string(value) != "false" {
		return "is not a boolean"
	}
	return ""
}

func (p *nixlParams) numTokens(value []byte) string {
	if reason := optional(value, 1, 1<<31-1); reason != "" || string(value) == "null" {
		return reason
	}
	p.tokens, _ = strconv.Atoi(string(value))
	return ""
}

// blockIDs reads one list of block ids for each KV cache group.
func (p *blockGroups) blockIDs(value []byte) string {
	s := rawjson.Scanner{Data: value}
	if s.Peek() != '[' {
		return "is not a list"
	}
	p.groups = p.few[:0]
	var room [512]uint32 // enough blocks for most prompts
	few := room[:0]
	if len(value) > 2*len(room) { // there may be more
		few = nil
	}
	for range s.Elements() {
		if s.Peek() != '[' {
			return "is not a list of lists"
		}
		ids := s.IDs(few)
		if s.Err() != nil {
			return "is not a list of lists of block ids"
		}
		if len(ids) == 0 {
			return "has a group without blocks"
		}
		for _, id := range ids {
			p.highest = max(p.highest, id)
		}
		p.groups = append(p.groups, len(ids))
	}
	switch {
	case len(p.groups) == 0:
		return "is empty"
	case p.highest > 1<<31-1:
		return "has a block id out of range"
	}
	return ""
}

func nonEmpty(value []byte) string {
	if value[0] != '"' || len(value) <= len(`""`) {
		return "is not a string, or empty"
	}
	return ""
}

func optional(value []byte, low, high int) string {
	if string(value) == "null" {
		return ""
	}
	return between(value, low, high)
}

func between(value []byte, low, high int) string {
	if n, err := strconv.Atoi(string(value)); err != nil || n < low || n > high {
		return "is not an integer from " + strconv.Itoa(low) + " to " + strconv.Itoa(high)
	}
	return ""
}

// expectation is what the params must fit; 0 is unknown.
type expectation struct {
	prompt    int // tokens that P counted
	decode    int // tokens of the decode leg's prompt
	blockSize int // of P
	blocks    int // of P
	withheld  *Withheld
}

// check compares the params with the request: a prompt that is longer on D than on P ends D, a shorter one is
// answered wrongly.
func (p *nixlParams) check(want expectation) error {
	prompt := want.prompt
	if prompt <= 0 {
		prompt = want.decode
	}
	switch {
	case want.prompt > 0 && want.decode > 0 && want.prompt != want.decode:
		return &InvalidParams{"prompt_tokens", "differ between the legs"}
	case prompt <= 0 && p.tokens <= 0:
		return &InvalidParams{"remote_num_tokens", "is missing, and so is the prompt's length"}
	case prompt > 0 && p.tokens > 0 && (p.tokens > prompt || p.tokens < prompt-mostWithheld):
		return &InvalidParams{"remote_num_tokens", "is not the prompt's length"}
	}
	if err := p.blocks.checkBlocks(cmp.Or(max(p.tokens, 0), prompt), want); err != nil || prompt <= 0 ||
		p.tokens <= 0 {
		return err
	}
	return want.withheld.agree(p.engine, prompt, prompt-p.tokens)
}

// checkBlocks counts blocks. With one group, as attention has, the number is known; groups of a sliding
// window or of state hold fewer.
func (p *blockGroups) checkBlocks(tokens int, want expectation) error {
	if len(p.groups) == 1 && want.blocks > 0 && int(p.highest) > want.blocks {
		return &InvalidParams{"remote_block_ids", "has a block id out of range"}
	}
	if want.blockSize <= 0 {
		return nil
	}
	need := (tokens + want.blockSize - 1) / want.blockSize
	for _, n := range p.groups {
		if n > need || len(p.groups) == 1 && n < need {
			return &InvalidParams{
				"remote_block_ids", "has " + strconv.Itoa(n) + " blocks where the prompt needs " + strconv.Itoa(need),
			}
		}
	}
	return nil
}

// rewrite returns a copy of the params with the host (unless "") and the ids (unless nil) put in. It leaves
// out the prefill engine's number of cached tokens. With that number a decode engine repeats it in its usage
// (vLLM 0.32, v1/engine/output_processor.py). Without that number the engine tells how many tokens it has
// loaded or held, which is the only proof that blocks have moved. Every other byte stays.
func (p *nixlParams) rewrite(host string, ids []byte) []byte {
	out := make([]byte, 0, len(p.raw)+len(host)+len(ids)+32)
	out = append(out, p.raw[:p.at.inside]...)
	if ids != nil {
		out = append(append(append(out, `"prompt_token_ids":`...), ids...), ',')
	}
	pos := p.at.inside
	put := func(at [2]int, value []byte) {
		out = append(append(out, p.raw[pos:at[0]]...), value...)
		pos = at[1]
	}
	hostFirst := p.at.hostAt[0] < p.at.hitAt[0]
	if host != "" && hostFirst {
		put(p.at.hostAt, rawjson.AppendString(nil, host))
	}
	if p.at.hitAt[1] > 0 {
		put(p.at.hitAt, []byte("null"))
	}
	if host != "" && !hostFirst {
		put(p.at.hostAt, rawjson.AppendString(nil, host))
	}
	return append(out, p.raw[pos:]...)
}

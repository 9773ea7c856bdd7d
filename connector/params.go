package connector

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// answerParams is a prefill engine's description of its blocks. Each check below is one row of the list of
// params that end, hang or corrupt a decode engine (vLLM 0.32: nixl/pull_scheduler.py, metadata.py,
// base_worker.py, moriio/moriio_connector.py).
type answerParams struct {
	mode    *dialect // the expected mode
	raw     []byte
	host    string
	at      places
	blocks  blockGroups
	tokens  int    // remote_num_tokens; -1: unknown
	moves   string // transfer_mode
	pulls   bool   // do_remote_prefill
	decodes bool   // do_remote_decode
	engine  string // remote_engine_id
	id      string // transfer_id
}

// places holds the positions of members in raw, for edits.
type places struct {
	hostAt [2]int        // position of the value, with its quotes
	hitAt  [2]int        // position of remote_prefill_cached_tokens' value; zero: missing
	keys   []judgement   // keys of the members, in order
	few    [16]judgement // backs keys; large enough for usual params
	inside int           // position of the first member
}

// blockGroups holds the blocks in the params, by KV cache group.
type blockGroups struct {
	groups  []int  // number of blocks in each KV cache group
	few     [4]int // backs groups; most models have one group
	highest uint32 // highest block id
}

// readAll reads raw into p, which has only its mode, and refuses params that must not reach a decode engine
// in any request. The error for another protocol comes first, because it explains more than a missing key.
func (p *answerParams) readAll(raw []byte) error {
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

// mostParams bounds the members, because every member is compared with all members before it.
const mostParams = 1000

// has reports whether a member of this name has been read.
func (p *places) has(name string) bool {
	return slices.ContainsFunc(p.keys, func(k judgement) bool { return k.key == name })
}

// foreign refuses params of another protocol or of the other mode. Engines before 0.32 pull, and have no
// transfer_mode.
func (p *answerParams) foreign() error {
	if err := p.mode.foreignKey(p.at.keys); err != nil {
		return err
	}
	if p.mode.name == "" {
		return nil
	}
	if p.moves == p.mode.other || p.moves == "" && p.mode == pushes && p.at.has("remote_engine_id") {
		return p.mode.foreign("NIXL "+p.mode.other, "transfer_mode")
	}
	return nil
}

// complete refuses params without a required key. read has refused nulls.
func (p *answerParams) complete() error {
	for _, name := range p.mode.required {
		if !p.at.has(name) {
			return &InvalidParams{name, "is missing"}
		}
	}
	if !p.pulls {
		return &InvalidParams{"do_remote_prefill", "is not true"}
	}
	if p.decodes {
		return &InvalidParams{"do_remote_decode", "is true"}
	}
	return nil
}

// read reads one member. It returns why the member must not be sent, or "".
//
// Long: one case per key.
func (p *answerParams) read(name string, value []byte, at int) string {
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
	case "remote_handshake_port", "remote_notify_port": // numbers or texts, as in the engine's configuration
		return between(bytes.Trim(value, `"`), 1, 65535)
	case "remote_dp_rank", "remote_dp_size_local": // D ends on null
		return between(value, 0, 1<<16)
	case "remote_dp_size":
		return between(value, 1, 1<<16)
	case "transfer_id":
		p.id = rawjson.Text(value)
		return nonEmpty(value)
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
	case "prompt_token_ids", "is_request_leader":
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

func (p *answerParams) numTokens(value []byte) string {
	if reason := optional(value, 1, 1<<31-1); reason != "" || string(value) == "null" {
		return reason
	}
	p.tokens, _ = strconv.Atoi(string(value))
	return ""
}

// blockIDs reads the lists of block ids, one for each KV cache group.
func (p *blockGroups) blockIDs(value []byte) string {
	s := rawjson.Scanner{Data: value}
	if s.Peek() != '[' {
		return "is not a list"
	}
	p.groups = p.few[:0]
	var room [512]uint32 // enough blocks for most prompts
	few := room[:0]
	if len(value) > 2*len(room) { // may have more ids
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

// expectation is what the params must match; 0 is unknown.
type expectation struct {
	prompt    int // prompt tokens counted by P
	decode    int // tokens of the decode leg's prompt
	blockSize int // P's block size
	blocks    int // P's number of blocks
	withheld  *Withheld
	transfer  string // MoRI-IO: the transfer id of leg 1
}

// check compares the params with the request. A prompt that is longer on D than on P ends D. A shorter one
// gets a wrong answer.
func (p *answerParams) check(want expectation) error {
	prompt := want.prompt
	if prompt <= 0 {
		prompt = want.decode
	}
	switch {
	case p.mode.protocol == ofMoRIIO && p.id != want.transfer: // P would not free the blocks
		return &InvalidParams{"transfer_id", "is not that of the prefill leg"}
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

// checkBlocks checks the number of blocks. One full-attention group has exactly the needed number. Groups of
// a sliding window or of state have fewer.
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

// rewrite returns a copy of the params with the dialect's members, the host (unless "") and the ids (unless
// nil). It removes the prefill engine's number of cached tokens, which a decode engine would repeat in its
// usage (vLLM 0.32, v1/engine/output_processor.py). Without this number, the usage has the tokens that the
// decode engine has loaded or held: the only proof that blocks have moved. All other bytes stay.
func (p *answerParams) rewrite(host string, ids []byte) []byte {
	out := make([]byte, 0, len(p.raw)+len(host)+len(ids)+32)
	out = append(append(out, p.raw[:p.at.inside]...), p.mode.adds...)
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

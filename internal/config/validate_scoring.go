package config

import (
	"fmt"
	"time"
)

func (s *Scoring) check(ck *checker) {
	ck.weight("scoring.alpha", s.Alpha.Value)
	ck.weight("scoring.beta", s.Beta)
	ck.weight("scoring.gamma", s.Gamma)
	ck.weight("scoring.decode_penalty", s.DecodePenalty)
	ck.longer("scoring.prefill_piece", s.PrefillPiece, 0)
	if !(s.HeadroomMargin >= 0 && s.HeadroomMargin < 1) {
		ck.add("scoring.headroom_margin", fmt.Sprintf("is %v", s.HeadroomMargin),
			"choose a share from 0 to below 1: at 1 no request has room")
	}
	ck.between("scoring.expected_output", s.ExpectedOutput, 1, 10_000_000)
	ck.size("scoring.kv_bytes_per_token", s.KVBytesPerToken, 1)
	seen := map[string]bool{}
	for i, m := range s.Models {
		at := fmt.Sprintf("scoring.models[%d]", i)
		checkModel(ck, at+".model", m.Model)
		if ck.size(at+".kv_bytes_per_token", m.KVBytesPerToken, 1); seen[m.Model] {
			ck.add(at+".model", fmt.Sprintf("%q stands here already", m.Model), "keep one entry")
		}
		seen[m.Model] = true
	}
	ck.size("scoring.links.host", s.Links.Host, 1)
	ck.size("scoring.links.rack", s.Links.Rack, 1)
	ck.size("scoring.links.zone", s.Links.Zone, 1)
	ck.size("scoring.links.other", s.Links.Other, 1)
}

func (t *Tokenizer) check(ck *checker) {
	ck.oneOf("tokenizer.source", t.Source, TokensEngines, TokensNone)
	ck.size("tokenizer.cache_bytes", t.CacheBytes, 0)
	if d := t.ChatTTL; d < 0 || d > 24*time.Hour {
		ck.add("tokenizer.chat_ttl", fmt.Sprintf("is %v", d),
			"choose from 0s, which remembers no chat, to 24h: templates may name the day")
	}
	if !(t.CharsPerToken >= 0.1 && t.CharsPerToken <= 100) {
		ck.add("tokenizer.chars_per_token", fmt.Sprintf("is %v", t.CharsPerToken),
			"choose from 0.1 to 100; English has about 4")
	}
	if n := t.ChunkBytes; n != 0 && (n < 16 || n > 1<<16) {
		ck.add("tokenizer.chunk_bytes", fmt.Sprintf("is %d", n),
			"choose from 16 to 65536, or 0 to match prompts by their tokens only")
	}
}

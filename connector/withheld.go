package connector

import (
	"strconv"
	"sync"
)

// mostWithheld is the maximum number of prompt tokens that a prefill engine leaves to decode. With Mamba
// layers, vLLM leaves the last token. With several MTP modules, it leaves one less than its speculative
// tokens; models have at most eight modules (nixl/base_scheduler.py, _prefill_backoff).
const mostWithheld = 15

// Withheld remembers how many prompt tokens each prefill engine leaves to decode: the same number for every
// longer prompt. An engine is identified by the engine id of its answers, which a restart changes. The zero
// value remembers nothing; a nil one checks only the range. Safe for concurrent use.
type Withheld struct {
	mu sync.Mutex
	by map[string]int
}

// maxEngines bounds the engines in Withheld. Above it, all are forgotten, and with them the engines that are
// gone.
const maxEngines = 4096

// agree refuses a reply if its engine left another number of tokens before. Then the new number becomes the
// right one: a restarted engine with a fixed id costs one attempt. A prompt of at most mostWithheld tokens
// teaches nothing, because the engine may leave the whole prompt to decode.
func (w *Withheld) agree(engineID string, prompt, withheld int) error {
	if w == nil || prompt <= mostWithheld {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.by[engineID]
	if !known || before != withheld {
		if w.by == nil || len(w.by) >= maxEngines {
			w.by = map[string]int{}
		}
		w.by[engineID] = withheld
	}
	if known && before != withheld {
		return &InvalidParams{
			"remote_num_tokens",
			"leaves " + strconv.Itoa(withheld) + " tokens to decode where the engine left " + strconv.Itoa(before),
		}
	}
	return nil
}

package connector

import (
	"strconv"
	"sync"
)

// mostWithheld is the most prompt tokens that a prefill engine leaves to decode. vLLM leaves the last one
// with Mamba layers. It leaves one less than its speculative tokens where several MTP modules draft them;
// models have eight modules at most (nixl/base_scheduler.py, _prefill_backoff).
const mostWithheld = 15

// Withheld remembers how many tokens of a prompt each prefill engine leaves to decode. An engine is known by
// the engine id of its answers, which a restart changes. Of every longer prompt the engine leaves the same
// number. The zero value remembers nothing; a nil one checks only the range. Safe for concurrent use.
type Withheld struct {
	mu sync.Mutex
	by map[string]int
}

// maxEngines bounds what Withheld remembers: beyond it engines that are gone are forgotten with all others.
const maxEngines = 4096

// agree refuses a reply if its engine left another number of tokens before. From then on the new number is
// the right one: an engine that was restarted with a fixed id costs one attempt. A prompt of at most
// mostWithheld tokens teaches nothing: the engine may leave the whole prompt to decode.
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

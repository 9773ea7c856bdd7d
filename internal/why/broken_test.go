package why_test

import (
	"testing"

	"github.com/tandem-router/tandem/internal/why"
)

// For a stream that lost its engine, the page names the engine that continued, or says why none did.
func TestWhatCameOfAStreamThatBrokeOff(t *testing.T) {
	for more, want := range map[string]string{
		`"continued":["d2"]`:        "\nbroke off, and went on at d2\n\n",
		`"not_continued":"sampled"`: "\nbroke off, and no replica continued: sampled\n\n",
		`"not_retried":"no_budget"`: "\nnot tried again: no_budget\n\n",
		`"continued":["d2"],"not_continued":"no_budget"`: "\nbroke off, and went on at d2\n" +
			"broke off, and no replica continued: no_budget\n\n",
	} {
		says(t, `{"id":"8a51","config":{},`+more+`}`, why.Weights{}, want)
	}
}

package orchestrator

import (
	"math"
	"testing"
	"time"
)

// A client that reads slowly delays its own stream. The engine's learned speed does not change.
func TestASlowReaderDoesNotMakeItsEngineSlow(t *testing.T) {
	in(t, setup{decode: 1}, func(w *world) {
		for range 6 {
			w.exact(chat(true), w.ask(chat(true), func(int) { time.Sleep(300 * time.Millisecond) }))
		}
		now := time.Now()
		if got := w.o.decode.Status(now)[0].Speed; got.D0 > 2*decodeStep.Seconds() {
			t.Errorf("learned a step of %.0f ms, want about %v", got.D0*1e3, decodeStep)
		}
	})
}

// The first token of an answer without a stream cannot be seen, so nothing is learned from its time.
func TestAnswersThatAreNotStreamedDoNotMakeLinksAndPrefillsSlow(t *testing.T) {
	in(t, setup{decode: 1, prefill: 1}, func(w *world) {
		for range 6 {
			w.exact(chat(false), w.ask(chat(false)))
		}
		got := w.o.decode.Status(time.Now())[0].Speed
		other := w.o.prefill.Status(time.Now())[0].Speed // the other pool may have measured one more prompt
		if math.Abs(got.T0/other.T0-1) > 0.05 || math.Abs(got.A/other.A-1) > 0.05 || got.B != other.B {
			t.Errorf("without local prefills, learned %+v; want the other pool's %+v", got, other)
		}
		if got.D0 < decodeStep.Seconds()/4 || got.D0 > 4*decodeStep.Seconds() {
			t.Errorf("learned a step of %.3f ms, want about %v", got.D0*1e3, decodeStep)
		}
	})
}

// The duration of each leg is compared with its prediction, except the first token of answers without a
// stream, which cannot be seen.
func TestLegsAreComparedWithTheirPrediction(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for i := range 5 {
			p := chat(i < 3)
			w.exact(p, w.ask(p))
		}
		prefills, decodes := 0, 0
		for i := range w.p {
			prefills += w.seriesOf("tandem_leg_prediction_ratio_count", "prefill", w.p[i].addr)
			decodes += w.seriesOf("tandem_leg_prediction_ratio_count", "decode", w.d[i].addr)
		}
		if prefills != 5 || decodes != 3 {
			t.Errorf("compared %d prefill and %d decode legs, want 5 and 3", prefills, decodes)
		}
	})
}

package orchestrator

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// canaryLoad is clients that ask for the alias and for both models, all at once.
type canaryLoad struct {
	w       *world
	prompts []prompt                     // of the alias
	right   map[string]map[string]string // by model and body: the text that the model gives

	mu      sync.Mutex     // guards the following
	served  map[string]int // answers to the alias in this phase, by model
	refused map[string]int // requests without an answer in this phase, by what was asked for
	wrong   []string
}

// phase lets so many clients ask so many times each, and returns how many answers each model gave for the
// alias. during makes its changes while clients still ask.
func (l *canaryLoad) phase(clients, times int, during func()) (served, refused map[string]int) {
	l.served, l.refused = map[string]int{}, map[string]int{}
	var all sync.WaitGroup
	var ended atomic.Int64 // clients that have asked for the last time
	for c := range clients {
		all.Go(func() {
			for i := range times {
				p := inSession(l.prompts[(c+i)%len(l.prompts)], fmt.Sprint("session-", c, "-", i))
				name := [...]string{"chat", "chat", "sim", "other"}[(c+i)%4]
				l.judge(name, p.body, l.w.ask(adaptedFrom(p, "chat", name)))
			}
			ended.Add(1)
		})
	}
	if during != nil {
		if during(); ended.Load() == int64(clients) {
			l.w.t.Error("the load ended before the changes: the test would see no mistake")
		}
	}
	all.Wait()
	return l.served, l.refused
}

// judge notes what became of a request for a name.
func (l *canaryLoad) judge(name, body string, got *heard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data := got.raw
	if len(got.events) > 0 {
		data = got.events[0]
	}
	var said struct{ Model string }
	_ = json.Unmarshal([]byte(data), &said)
	right := l.right[said.Model][body]
	switch {
	case got.status >= 500 || got.fail.Code >= 500:
		if l.refused[name]++; !strings.HasPrefix(right, got.text) {
			l.wrong = append(l.wrong, fmt.Sprintf("%s: %q before an error", name, got.text))
		}
	case got.status != 200 || got.text != right || name != "chat" && said.Model != name:
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %d by %q: %q, want %q", name, got.status, said.Model, got.text,
			right))
	case name == "chat":
		l.served[said.Model]++
	}
}

// 64 clients use two models with two pools each, and a canary of 90 to 10 between them. Under this load the
// weights change, and then one model's engines are killed. No answer is wrong, each model's own clients get
// their own model, and the other model does not notice.
func TestACanaryUnderLoad(t *testing.T) {
	inTwo(t, setup{config: withAliases(canaryOf(90, 10, ""))}, func(w *world, own *simulated) {
		l := &canaryLoad{w: w, right: map[string]map[string]string{"sim": {}, "other": {}}}
		for i := range 8 {
			for _, p := range []prompt{completion(i%2 == 0), chat(i%2 == 0)} {
				p = adapted(p, "chat")
				p.body = strings.Replace(p.body, "word0", fmt.Sprint("topic", i), 1)
				l.prompts = append(l.prompts, p)
				l.right["sim"][p.body] = w.right(adaptedFrom(p, "chat", "sim")).text
				other := w.send(w.t.Context(), own.addr, adaptedFrom(p, "chat", "other"))
				l.right["other"][p.body] = other.text
			}
		}
		share := func(served map[string]int) float64 {
			return float64(served["other"]) / float64(served["sim"]+served["other"])
		}
		const clients, times = 64, 12
		served, refused := l.phase(clients, times, nil)
		t.Logf("90 to 10: %v, share %.3f, refused %v", served, share(served), refused)
		if len(refused) > 0 || math.Abs(share(served)-0.1) > 0.04 {
			t.Errorf("a canary of 10 %% got %.3f; refused %v", share(served), refused)
		}
		served, refused = l.phase(clients, times, func() {
			for _, percent := range []int{50, 0, 100, 50} {
				time.Sleep(200 * time.Millisecond)
				changed := *w.cfg
				changed.Aliases = []config.Alias{canaryOf(100-percent, percent, "")}
				w.apply(&changed)
			}
		})
		t.Logf("reloads: %v, share %.3f, refused %v", served, share(served), refused)
		if len(refused) > 0 || served["sim"] == 0 || served["other"] == 0 {
			t.Errorf("reloads under load: %v, refused %v", served, refused)
		}
		changed := *w.cfg
		changed.Aliases = []config.Alias{canaryOf(50, 50, "sim")}
		w.apply(&changed)
		served, refused = l.phase(clients, times, func() {
			time.Sleep(300 * time.Millisecond)
			for _, e := range slices.Concat(w.p[2:], w.d[2:]) {
				vanish(w, e)
			}
		})
		t.Logf("other is killed: %v, refused %v", served, refused)
		if refused["sim"] > 0 || refused["other"] == 0 || refused["chat"] > clients {
			t.Errorf("other is killed: refused %v", refused)
		}
		for _, text := range l.wrong {
			t.Error(text)
		}
		for _, e := range slices.Concat(w.p[2:], w.d[2:]) {
			w.net.Refuse(e.addr, false)
		}
		time.Sleep(time.Minute)
	})
}

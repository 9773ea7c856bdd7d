package fleet

import (
	"reflect"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Everything that keeps two replicas from making a pair has advice, and nothing else has. The planner and
// setup compare the same facts.
func TestWhatIsNoPairHasAdvice(t *testing.T) {
	kind := reflect.TypeFor[replica.Facts]()
	apart := 0
	for i := range kind.NumField() {
		var p, d replica.Replica
		p.URL, d.URL = "http://p0:1", "http://d0:1"
		a := reflect.ValueOf(&p.Facts).Elem().Field(i)
		b := reflect.ValueOf(&d.Facts).Elem().Field(i)
		switch a.Kind() {
		case reflect.String:
			a.SetString("one")
			b.SetString("other")
		case reflect.Int:
			a.SetInt(16)
			b.SetInt(32)
		default:
			continue
		}
		reason, do := planner.Incompatible(&p, &d), setup.Apart(setup.KV{Connector: "NixlConnector"}, &p, &d)
		if (reason == "") != (len(do) == 0) {
			t.Errorf("%s differs: the planner says %q, and the advice is %q", kind.Field(i).Name, reason, do)
		}
		if reason != "" {
			apart++
		}
	}
	if apart < 5 {
		t.Errorf("%d facts keep replicas apart: this test tests nothing", apart)
	}
}

package orchestrator

import (
	"encoding"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/prefill"
)

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// All JSON of the admin listener, the file of decisions and the page has names in snake case. Each name
// was chosen for its readers; none is a Go field name by accident.
func TestNamesInJSONAreSnakeCase(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, v := range []any{
		observe.Record{},
		planner.Decision{},
		observe.Status{},
		admin.Readiness{},
		prefill.MemberStatus{},
		decode.MemberStatus{},
		page.Live{},
	} {
		namesOf(t, reflect.TypeOf(v), seen)
	}
	if len(seen) < 20 {
		t.Errorf("checked only %d types", len(seen))
	}
}

func namesOf(t *testing.T, of reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		namesOf(t, of.Elem(), seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[of] || of.Implements(reflect.TypeFor[json.Marshaler]()) ||
		of.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return
	}
	seen[of] = true
	for f := range of.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() && !f.Anonymous, tag == "-":
			continue
		case f.Anonymous && tag == "":
		case !snakeCase.MatchString(tag):
			t.Errorf("%s.%s is called %q in JSON", of, f.Name, tag)
		}
		namesOf(t, f.Type, seen)
	}
}

// A list of decisions is as long as requested. A query with an error is refused, not answered with another
// list.
func TestADecisionListIsTheOneThatWasAskedFor(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for range 3 {
			w.ask(completion(false))
		}
		for query, want := range map[string]int{
			"": 3, "?n=2": 2, "?n=100": 3, "?n=abc": -1, "?n=0": -1, "?n=-1": -1, "?n=": -1, "?mode=split": -1,
			"?n=2&outcome=ok": -1,
		} {
			rec := httptest.NewRecorder()
			w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/debug/decisions"+query, nil))
			var list []struct{}
			if got := rec.Code == http.StatusOK; got != (want >= 0) {
				t.Errorf("%q: status %d", query, rec.Code)
			} else if err := json.Unmarshal(rec.Body.Bytes(), &list); want >= 0 && (err != nil || len(list) != want) {
				t.Errorf("%q: %d records and %v, want %d", query, len(list), err, want)
			}
		}
	})
}

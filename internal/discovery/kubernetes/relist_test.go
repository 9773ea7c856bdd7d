package kubernetes

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/tandem-router/tandem/internal/lab/kubernetestest"
)

// An API server that is behind the others answers with lists of the past. They bring no removed pod back and
// drop no new one, and people are told. Afterwards changes are followed again.
func TestAnOlderListIsIgnored(t *testing.T) {
	for _, noStream := range []bool{false, true} {
		t.Run(map[bool]string{false: "streamed", true: "listed"}[noStream], func(t *testing.T) {
			t.Parallel()
			a := kubernetestest.Start(t)
			if noStream {
				a.NoStream()
			}
			a.Put(kubernetestest.Ready("p0", "prefill", "10.0.0.1", 8000))
			a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.2", 8000))
			r := run(t, a)
			r.until(one, "")
			past := a.Past()
			a.Put(kubernetestest.Ready("d1", "decode", "10.0.0.3", 8000))
			a.Remove("d0")
			now := strings.ReplaceAll(one, "d0=http://10.0.0.2", "d1=http://10.0.0.3")
			r.until(now, "")

			a.Behind(past)
			r.eventually(func() (string, bool) {
				got := r.text()
				if strings.Contains(got, "d0") || !strings.Contains(got, "d1") {
					t.Errorf("found\n%s", got)
				}
				return got, a.Late() >= 3 && strings.Contains(r.Found(r.cfg)[0].Err, "older list")
			})
			a.Behind(nil)
			r.until(now, "")
			a.Put(kubernetestest.Ready("d0", "decode", "10.0.0.4", 8000))
			a.Remove("d1")
			r.until(strings.ReplaceAll(one, "10.0.0.2", "10.0.0.4"), "")
		})
	}
}

// replaced is a store that notes the versions of lists.
type replaced struct {
	cache.ReflectorStore

	versions []string
}

func (r *replaced) Replace(_ []any, version string) error {
	r.versions = append(r.versions, version)
	return nil
}

// A past that lasts is a restored etcd, and is taken. A version that is no number is never older.
func TestAPastThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, told := &replaced{}, 0
		f := &forward{ReflectorStore: to, refused: func(error) { told++ }}
		for _, version := range []string{"900", "1000", "opaque", "1000", "1001"} {
			if err := f.Replace(nil, version); err != nil {
				t.Error(version, err)
			}
		}
		refuse := func(version string) {
			t.Helper()
			if err := f.Replace(nil, version); !errors.Is(err, errOlderList) {
				t.Error(version, err)
			}
		}
		refuse("999")
		f.UpdateResourceVersion("1001")
		f.UpdateResourceVersion("1000") // of a late event
		time.Sleep(longestPast - time.Second)
		refuse("1000")
		if err := f.Replace(nil, "1002"); err != nil { // the past has not lasted
			t.Error(err)
		}
		refuse("999")
		time.Sleep(longestPast)
		if err := f.Replace(nil, "999"); err != nil {
			t.Error(err)
		}
		if got := strings.Join(to.versions, " "); got != "900 1000 opaque 1000 1001 1002 999" || told != 3 {
			t.Errorf("taken %s, told %d", got, told)
		}
	})
}

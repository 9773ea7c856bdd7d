package kubernetes

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// forward refuses lists that are older than what is known. With such lists an API server that is behind the
// others would bring removed pods back, and drop new pods. The reflector then asks again. Versions of one
// kind are numbers that grow (Kubernetes 1.35; before, they were so in fact). Not safe for concurrent use.
type forward struct {
	cache.ReflectorStore

	newest  string    // version of what is known
	since   time.Time // of the first older list; zero after a list that was taken
	refused func(error)
}

// longestPast is how long older lists are refused. A server that is behind catches up or is taken out of use
// before. After that time, etcd has been restored from a backup, and its past is the present.
const longestPast = 2 * time.Minute

var errOlderList = errors.New("the API server answered with an older list than before: is one of its " +
	"replicas behind, or was etcd restored")

// Replace takes in a whole list, or refuses it.
func (f *forward) Replace(list []any, version string) error {
	if order, err := resourceversion.CompareResourceVersion(version, f.newest); err == nil && order < 0 {
		if f.since.IsZero() {
			f.since = time.Now()
		}
		if time.Since(f.since) < longestPast {
			err := fmt.Errorf("%w (version %s, after %s)", errOlderList, version, f.newest)
			f.refused(err)
			return err
		}
	}
	f.newest, f.since = version, time.Time{}
	return f.ReflectorStore.Replace(list, version)
}

// UpdateResourceVersion takes in the version of each event; the reflector calls it.
func (f *forward) UpdateResourceVersion(version string) {
	if order, err := resourceversion.CompareResourceVersion(version, f.newest); err == nil && order > 0 {
		f.newest = version
	}
}

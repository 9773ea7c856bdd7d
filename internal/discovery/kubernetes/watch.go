package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"

	"github.com/tandem-router/tandem/internal/config"
)

// patience is how long the API server may take for an answer, and for the end of a watch.
const patience = 30 * time.Second

// clientFor makes a client that knows pods and nothing else: the types of the whole core API would make the
// binary larger by megabytes. The error says what to change.
func clientFor(k *config.Kubernetes, namespace string) (rest.Interface, error) {
	if namespace == "" {
		return nil, errors.New("discovery.kubernetes.namespace is missing, and this process does not run in " +
			"a pod; write the namespace of the engines")
	}
	c := &rest.Config{
		Host: k.Server, BearerTokenFile: k.TokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: k.CA},
	}
	if k.Server == "" {
		var err error
		if c, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("discovery.kubernetes.server is missing, and this process does not run in a "+
				"cluster (%w); write the address of an API server", err)
		}
	}
	if c.BearerTokenFile != "" { // with this wrapper the file is read again after a 401, and not a minute later
		c.WrapTransport = transport.ResettableTokenSourceWrapTransport(
			transport.NewCachedFileTokenSource(c.BearerTokenFile),
		)
		c.BearerToken, c.BearerTokenFile = "", ""
	}
	scheme, v1 := runtime.NewScheme(), schema.GroupVersion{Version: "v1"}
	scheme.AddKnownTypeWithName(v1.WithKind("Pod"), &apiPod{})
	scheme.AddKnownTypeWithName(v1.WithKind("PodList"), &apiPodList{})
	metav1.AddToGroupVersion(scheme, v1)
	c.APIPath, c.GroupVersion = "/api", &v1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.UserAgent = "tandem"
	c.WarningHandler = rest.NoWarnings{}
	c.QPS = -1 // one list and one watch: the reflector paces itself
	return rest.RESTClientFor(c)
}

// watcher asks for the pods of a spec. It calls its functions from one goroutine at a time.
type watcher struct {
	spec  *spec
	heard func(error)   // the result of each question to the API server, nil for an answer
	found func([]found) // all members, when the pods have been listed and when members have changed
}

// run asks until ctx ends.
func (w *watcher) run(ctx context.Context, client rest.Interface) {
	store := &store{watcher: w, pods: map[string]*pod{}}
	r := cache.NewReflectorWithOptions(w.listWatch(client), &apiPod{}, store, cache.ReflectorOptions{
		Name: "tandem", TypeDescription: "pods",
		Backoff: &wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 1, Steps: 8, Cap: 10 * time.Second},
	})
	r.RunWithContext(logr.NewContext(ctx, logr.Discard())) // heard tells the same
}

// listWatch asks for the pods, and tells whether there was an answer.
func (w *watcher) listWatch(client rest.Interface) *cache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		o.LabelSelector = w.spec.all.String()
		return client.Get().Namespace(w.spec.namespace).Resource("pods").VersionedParams(&o, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			pods := &apiPodList{}
			err := request(o).Do(ctx).Into(pods)
			w.heard(w.outage(err))
			return pods, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			ctx, cancel := context.WithCancel(ctx)
			clock := time.AfterFunc(patience, cancel)
			o.Watch = true
			events, err := request(o).Watch(ctx)
			w.heard(w.outage(err))
			if err != nil {
				cancel()
				return nil, err
			}
			if o.TimeoutSeconds != nil {
				clock.Reset(time.Duration(*o.TimeoutSeconds)*time.Second + patience)
			}
			return &limitedWatch{events, cancel}, nil
		},
	}
}

// limitedWatch is a watch that ends with its context.
type limitedWatch struct {
	watch.Interface

	cancel context.CancelFunc
}

// Stop ends the watch.
func (w *limitedWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}

// outage is what to tell people of err. An old version of the list is no outage: a new list follows.
func (w *watcher) outage(err error) error {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server forbids it: allow get, list and watch of pods in namespace %s, as "+
			"deploy/kubernetes/tandem.yaml does: %w", w.spec.namespace, err)
	}
	return err
}

// store takes in what the reflector learns. The reflector's goroutine alone calls it.
type store struct {
	*watcher

	pods    map[string]*pod // by name
	members map[string]bool // uids of the pods that are members
	last    []found         // nil until the pods have been listed
}

// Add takes in a pod.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update takes in a changed pod.
func (s *store) Update(obj any) error {
	if p, ok := obj.(*apiPod); ok {
		s.pods[p.Name] = podOf(p)
		s.tell()
	}
	return nil
}

// Delete takes out a pod.
func (s *store) Delete(obj any) error {
	if p, ok := obj.(*apiPod); ok {
		delete(s.pods, p.Name)
		s.tell()
	}
	return nil
}

// Replace takes in a whole list.
func (s *store) Replace(list []any, _ string) error {
	clear(s.pods)
	for _, obj := range list {
		if p, ok := obj.(*apiPod); ok {
			s.pods[p.Name] = podOf(p)
		}
	}
	s.tell()
	return nil
}

// Resync is for stores with events of their own.
func (s *store) Resync() error { return nil }

// tell calls found if members have changed. Most changes of pods change no member.
func (s *store) tell() {
	pods := make([]*pod, 0, len(s.pods))
	for _, p := range s.pods {
		pods = append(pods, p)
	}
	var all []found
	if all, s.members = s.spec.members(pods, s.members); s.last == nil || !reflect.DeepEqual(all, s.last) {
		s.last = all
		s.watcher.found(all)
	}
}

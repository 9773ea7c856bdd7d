package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	"github.com/tandem-router/tandem/internal/panics"
)

// patience is how long the API server may take for an answer, and for the end of a watch.
const patience = 30 * time.Second

// The pauses between two questions to an API server that refuses the questions. The pauses double up to
// mostPause, so that a recovered server is noticed after mostPause at the latest. client-go adds the jitter
// to its cap.
const (
	leastPause   = time.Second / 2
	mostPause    = 5 * time.Second
	slowestPause = 30 * time.Second // for nodes, which may be forbidden for ever
	pauseJitter  = 1                // times a pause, at most, is added: routers do not ask in step
)

// clientFor makes a client that knows pods, nodes and InferencePools and nothing else: the types of the
// whole core API would make the binary larger by megabytes. The error says what to change.
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
	if c.CAFile != "" {
		to := &trusting{file: c.CAFile}
		if err := to.loadLocked(); err != nil {
			return nil, err
		}
		c.Transport, c.TLSClientConfig = to, rest.TLSClientConfig{}
	}
	return podClient(c)
}

// inferenceGroup is the group of InferencePools.
const inferenceGroup = "inference.networking.k8s.io"

// podClient makes a client of the API server of c.
func podClient(c *rest.Config) (rest.Interface, error) {
	scheme, v1 := runtime.NewScheme(), schema.GroupVersion{Version: "v1"}
	pools := schema.GroupVersion{Group: inferenceGroup, Version: "v1"}
	metav1.AddToGroupVersion(scheme, pools)
	metav1.AddToGroupVersion(scheme, v1)
	for _, kind := range []schema.GroupVersionKind{
		v1.WithKind("Pod"), v1.WithKind("Node"), pools.WithKind("InferencePool"),
	} {
		scheme.AddKnownTypeWithName(kind, &apiObject{})
		kind.Kind += "List"
		scheme.AddKnownTypeWithName(kind, &apiList{})
	}
	c.APIPath, c.GroupVersion = "/api", &v1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.UserAgent = "tandem"
	c.WarningHandler = rest.NoWarnings{}
	c.QPS = -1 // few lists and watches: the reflector paces itself
	return rest.RESTClientFor(c)
}

// watcher asks for the pods of a spec, for the nodes if places are wanted, and for the InferencePool of the
// spec. It calls its functions from one goroutine at a time.
type watcher struct {
	spec   *spec
	panics panics.Guard
	heard  func(error)   // why pods or the InferencePool cannot be read, after each question; nil for an answer
	found  func([]found) // all members, when they are known and when they have changed
}

// run asks until ctx ends.
func (w *watcher) run(ctx context.Context, client rest.Interface) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	store := newStore(w)
	if w.spec.place != (config.NodeLabels{}) {
		nodes := &objects{
			client: client, path: corePath, resource: "nodes", heard: store.hearNodes,
		}
		follow := func() { nodes.follow(ctx, &store.places, slowestPause) }
		wg.Go(func() { w.panics.KeepRunning(ctx, "nodes", follow) })
	}
	if w.spec.inferencePool != "" {
		pool := &objects{
			client: client, path: "/apis/" + inferenceGroup + "/v1", resource: "inferencepools",
			namespace: w.spec.namespace, fields: "metadata.name=" + w.spec.inferencePool,
			heard: store.hearPool,
		}
		follow := func() { pool.follow(ctx, &store.pools, mostPause) }
		wg.Go(func() { w.panics.KeepRunning(ctx, "inferencepool", follow) })
	}
	pods := &objects{
		client: client, path: corePath, resource: "pods", namespace: w.spec.namespace,
		labels: w.spec.all.String(), heard: store.hearPods,
	}
	pods.follow(ctx, &store.pods, mostPause)
}

const corePath = "/api/v1"

// objects asks for the objects of one kind.
type objects struct {
	client    rest.Interface
	path      string // of the group and the version
	resource  string
	namespace string          // "" for what is in none
	labels    string          // selector
	fields    string          // selector
	watching  watch.Interface // the newest one
	heard     func(error)     // the result of each question to the API server, nil for an answer
}

// follow puts the objects into a store until ctx ends. most is the longest pause between two questions to an
// API server that refuses them.
func (o *objects) follow(ctx context.Context, to cache.ReflectorStore, most time.Duration) {
	into := &forward{ReflectorStore: to, refused: o.refused}
	r := cache.NewReflectorWithOptions(o.listWatch(), &apiObject{}, into, cache.ReflectorOptions{
		Name: "tandem", TypeDescription: o.resource,
		Backoff: &wait.Backoff{
			Duration: leastPause, Factor: 2, Jitter: pauseJitter, Steps: 8, Cap: most / (1 + pauseJitter),
		},
	})
	r.RunWithContext(logr.NewContext(ctx, logr.Discard())) // heard tells the same
}

// refused ends the watch that began with a list that is not taken: the reflector forgets the watch.
func (o *objects) refused(err error) {
	if o.watching != nil {
		o.watching.Stop()
	}
	o.heard(err)
}

// listWatch asks, and tells whether there was an answer.
func (o *objects) listWatch() *cache.ListWatch {
	request := func(options metav1.ListOptions) *rest.Request {
		options.LabelSelector, options.FieldSelector = o.labels, o.fields
		get := o.client.Get().AbsPath(o.path).NamespaceIfScoped(o.namespace, o.namespace != "")
		get.MaxRetries(0) // heard has to know, and the reflector tries again
		return get.Resource(o.resource).VersionedParams(&options, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			list := &apiList{}
			err := request(options).Do(ctx).Into(list)
			o.heard(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			ctx, cancel := context.WithCancel(ctx)
			clock := time.AfterFunc(patience, cancel)
			options.Watch = true
			events, err := request(options).Watch(ctx)
			if _, streams := events.(*watch.StreamWatcher); err == nil && !streams {
				err = errNoAnswer
			}
			o.heard(err)
			if err != nil {
				cancel()
				return nil, err
			}
			if options.TimeoutSeconds != nil {
				clock.Reset(time.Duration(*options.TimeoutSeconds)*time.Second + patience)
			}
			o.watching = &limitedWatch{events, cancel}
			return o.watching, nil
		},
	}
}

// errNoAnswer stands for the errors that client-go hides behind an empty watch: a connection that ends, or an
// answer that does not come in time. The list that follows tells which one.
var errNoAnswer = errors.New("EOF or timeout: no answer to a watch")

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

// outage is what to tell people of err, the result of a question for a resource. A manifest in
// deploy/kubernetes has the right to read the resource. An old version of the list is no outage: a new list
// follows.
func (w *watcher) outage(err error, resource, manifest string) error {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server forbids it: allow get, list and watch of %s in namespace %s, as "+
			"deploy/kubernetes/%s does: %w", resource, w.spec.namespace, manifest, err)
	}
	return err
}

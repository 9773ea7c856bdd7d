package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-router/tandem/internal/config"
)

// podsOf reads the pods of a file.
func podsOf(t *testing.T, file string) (pods []*pod) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var p apiObject
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		is := podOf(&p)
		is.uid = p.Name
		pods = append(pods, is)
	}
	return pods
}

// lines writes one line for each replica that was found and for each pod that cannot be used.
func lines(all []found) (text []string) {
	for _, f := range all {
		for _, r := range f.Replicas {
			is := []string{fmt.Sprintf("%s %s %s at %s", f.Pool, r.ID(), r.URL, r.Place.Host)}
			if r.Place.Rack != "" {
				is = append(is, "rack "+r.Place.Rack)
			}
			if r.Revision != "" {
				is = append(is, "revision "+r.Revision)
			}
			if r.Shared {
				is = append(is, "shared")
			}
			if r.Drain {
				is = append(is, "drain")
			}
			if r.GatewayPort != 0 {
				is = append(is, fmt.Sprint("gateway ", r.GatewayPort))
			}
			text = append(text, strings.Join(is, ", "))
		}
		for _, why := range f.left {
			text = append(text, f.Pool+" left: "+why)
		}
	}
	return text
}

func specFor(t *testing.T, text string) *spec {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte("discovery: {kubernetes: {"+text+"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := specOf(&c.Discovery.Kubernetes, "own")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// advice is the log message for a selector that matches no pod.
func advice(pool string) string {
	return ": set discovery.kubernetes." + pool + ".selector to labels that kubectl get pods --show-labels shows"
}

// Each preset finds the engines of its platform's pods: the engine's port and not the sidecar's, leaders and
// not workers, roles, revisions and slices.
func TestPresets(t *testing.T) {
	for _, tt := range []struct {
		file, config string
		want         []string
	}{
		{"llm-d.yaml", `preset: llm-d`, []string{
			"prefill pd-both-a http://10.0.0.3:8000 at node-3, shared",
			"prefill pd-prefill-5d9c-a http://10.0.0.1:8000 at node-1",
			"decode pd-both-a http://10.0.0.3:8000 at node-3, shared",
			"decode pd-decode-77b8-a http://10.0.0.2:8200 at node-2",
		}},
		{"llm-d.yaml", `preset: llm-d, selector: "llm-d.ai/model=other"`, []string{
			`prefill left: no pod matches own: llm-d.ai/model=other,` +
				`llm-d.ai/role in (both,encode-prefill,encode-prefill-decode,prefill,prefill-decode)` + advice("prefill"),
			`decode left: no pod matches own: llm-d.ai/model=other,` +
				`llm-d.ai/role in (both,decode,encode-prefill-decode,prefill-decode)` + advice("decode"),
		}},
		{"kserve.yaml", `preset: kserve, selector: app.kubernetes.io/name=llama`, []string{
			"prefill llama-kserve-prefill-6c-a http://10.0.1.1:8000 at node-1",
			"decode llama-kserve-7f-a http://10.0.1.2:8001 at node-2",
		}},
		{"kserve.yaml", `preset: kserve, selector: app.kubernetes.io/name=qwen, https: true`, []string{
			"prefill qwen-kserve-8d-a https://10.0.1.3:8000 at node-3, shared",
			"decode qwen-kserve-8d-a https://10.0.1.3:8000 at node-3, shared",
		}},
		{
			"leaderworkerset.yaml", `preset: leaderworkerset,
			prefill: {selector: leaderworkerset.sigs.k8s.io/name=prefill},
			decode: {selector: leaderworkerset.sigs.k8s.io/name=decode}`,
			[]string{
				"prefill prefill-0 http://10.0.2.1:8080 at node-1",
				"decode decode-0 http://10.0.2.3:8080 at node-3",
			},
		},
		{"disaggregatedset.yaml", `preset: disaggregatedset`, []string{
			"prefill pd-0-a1b2-prefill-0 http://10.0.3.1:8080 at node-1, rack pd/0, revision a1b2",
			"decode pd-0-a1b2-decode-0 http://10.0.3.2:8080 at node-2, rack pd/0, revision a1b2",
			"decode pd-1-c3d4-decode-0 http://10.0.3.3:8080 at node-3, rack pd/1, revision c3d4",
		}},
		{"dynamo.yaml", `preset: dynamo, prefill: {port: "8000"}, decode: {port: system}`, []string{
			"prefill graph-vllmprefillworker-a http://10.0.4.1:8000 at node-1",
			"decode graph-vllmdecodeworker-a http://10.0.4.2:9090 at node-2",
		}},
		{
			"production-stack.yaml", `preset: production-stack, prefill: {selector: model=llama-prefill},
			decode: {selector: model=llama-decode}`,
			[]string{
				"prefill vllm-llama-prefill-deployment-vllm-a http://10.0.5.1:8000 at node-1",
				"decode vllm-llama-decode-deployment-vllm-a http://10.0.5.2:8000 at node-2",
			},
		},
		// Own labels, on one pool only, with a port that one pod does not have.
		{"llm-d.yaml", `decode: {selector: "llm-d.ai/role=decode", port: http}`, []string{
			`decode left: pod pd-decode-77b8-a of the decode pool: no port and no container with a port is called ` +
				`"http"; the ports are modelserver 8200 of container modelserver, nixl 5600 of container modelserver, ` +
				`sidecar 8000 of container routing-proxy; set port to one of them, or to a number`,
		}},
		{"llm-d.yaml", `decode: {selector: "llm-d.ai/role=decode"}, revision: llm-d.ai/model`, []string{
			"decode pd-decode-77b8-a http://10.0.0.2:8200 at node-2, revision gpt-oss-120b",
		}},
	} {
		all, _ := specFor(t, tt.config).members(podsOf(t, tt.file), nil)
		if got := lines(all); !slices.Equal(got, tt.want) {
			t.Errorf("%s with %s:\n%s\nwant\n%s", tt.file, tt.config, strings.Join(got, "\n"),
				strings.Join(tt.want, "\n"))
		}
	}
}

// A pod joins when it is ready. It gets no requests while it is unready or being deleted, and it leaves
// when it ends.
func TestLifeOfAPod(t *testing.T) {
	s := specFor(t, `decode: {selector: app=vllm}`)
	const member, drained = "decode d0 http://10.0.0.1:8000 at ", "decode d0 http://10.0.0.1:8000 at , drain"
	ports := []port{{name: "http", container: "vllm", number: 8000}}
	app := map[string]string{"app": "vllm"}
	other := &pod{name: "d1", uid: "d1", ip: "10.0.0.2", ready: true, labels: app, ports: ports}
	var was map[string]bool
	for _, step := range []struct {
		name string
		pod  *pod
		want string
	}{
		{"scheduled", &pod{uid: "1"}, ""},
		{"starting", &pod{uid: "1", ip: "10.0.0.1"}, ""},
		{"ready", &pod{uid: "1", ip: "10.0.0.1", ready: true}, member},
		{"the container starts again", &pod{uid: "1", ip: "10.0.0.1"}, drained},
		{"ready again", &pod{uid: "1", ip: "10.0.0.1", ready: true}, member},
		{"another address", &pod{uid: "1", ip: "10.0.0.9", ready: true}, "decode d0 http://10.0.0.9:8000 at "},
		{"the address of before", &pod{uid: "1", ip: "10.0.0.1", ready: true}, member},
		{"deletion begins", &pod{uid: "1", ip: "10.0.0.1", ready: true, deleting: true}, drained},
		{"its readiness ends", &pod{uid: "1", ip: "10.0.0.1", deleting: true}, drained},
		{"its containers have ended", &pod{uid: "1", ip: "10.0.0.1", deleting: true, ended: true}, ""},
		{"another pod of the name", &pod{uid: "2", ip: "10.0.0.1"}, ""},
		{"which is ready", &pod{uid: "2", ip: "10.0.0.1", ready: true}, member},
		{"relabelled", &pod{uid: "2", ip: "10.0.0.1", ready: true, labels: map[string]string{}}, ""},
		{"which never was ready", &pod{uid: "3", ip: "10.0.0.1", ready: true, deleting: true}, ""},
	} {
		step.pod.name, step.pod.ports = "d0", ports
		if step.pod.labels == nil {
			step.pod.labels = app
		}
		var all []found
		all, was = s.members([]*pod{step.pod, other}, was)
		got := ""
		for _, line := range lines(all) {
			if line != "decode d1 http://10.0.0.2:8000 at " {
				got = line
			}
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// The order of the API server's events does not change the members. One pod can have an engine for each
// pool.
func TestMembersDoNotDependOnOrder(t *testing.T) {
	s := specFor(t, `preset: llm-d, prefill: {port: "1"}, decode: {port: "2"}`)
	pods := podsOf(t, "llm-d.yaml")
	want, _ := s.members(pods, nil)
	slices.Reverse(pods)
	if got, _ := s.members(pods, nil); !slices.Equal(lines(got), lines(want)) {
		t.Errorf("%v, want %v", lines(got), lines(want))
	}
	both := []string{
		"prefill 10.0.0.3:1 http://10.0.0.3:1 at node-3", "decode 10.0.0.3:2 http://10.0.0.3:2 at node-3",
	}
	for _, line := range both {
		if !slices.Contains(lines(want), line) {
			t.Errorf("%v does not have %q", lines(want), line)
		}
	}
}

// decodePods returns pods of the decode pool. Each text is "NAME IP" with marks: r for ready, d for being
// deleted.
func decodePods(texts ...string) (pods []*pod) {
	for _, text := range texts {
		f := strings.Fields(text + " -")
		pods = append(pods, &pod{
			name: f[0], uid: f[0], ip: f[1], ready: strings.Contains(f[2], "r"), deleting: strings.Contains(f[2], "d"),
			labels: map[string]string{"app": "vllm"}, ports: []port{{number: 8000}},
		})
	}
	return pods
}

// The address of a pod on a lost node is given to another pod while the first pod is still listed. The
// ready pod is used for the address, for any order of the names.
func TestTwoPodsWithOneAddress(t *testing.T) {
	s := specFor(t, `decode: {selector: app=vllm}`)
	was := map[string]bool{"d0": true, "d2": true}
	for _, lost := range []string{"d0", "d2"} {
		for _, marks := range []string{"", "d", "rd"} {
			all, is := s.members(decodePods(lost+" 10.0.0.1 "+marks, "d1 10.0.0.1 r"), was)
			want := []string{
				"decode d1 http://10.0.0.1:8000 at ",
				"decode left: pod " + lost + " of the decode pool: pod d1 has its address http://10.0.0.1:8000; " +
					"delete the pod that does not run any more",
			}
			if got := lines(all); !slices.Equal(got, want) || is[lost] {
				t.Errorf("%s %q: %q, want %q", lost, marks, got, want)
			}
		}
	}
}

// A new pod that is Ready at the address of a serving pod does not replace it, for any order of the names
// and in any pool.
func TestANewPodTakesNoAddress(t *testing.T) {
	s := specFor(t, `preset: llm-d`)
	old := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		serves, joins := &pod{name: names[0], created: old}, &pod{name: names[1], created: old.Add(time.Second)}
		for _, p := range []*pod{serves, joins} {
			p.uid, p.ip = p.name, "10.0.0.1"
			p.ready = true
			p.ports = []port{{name: "modelserver", number: 8000}}
		}
		serves.labels, joins.labels = labels.Set{"llm-d.ai/role": "prefill"}, labels.Set{"llm-d.ai/role": "decode"}
		all, _ := s.members([]*pod{joins, serves}, nil)
		want := []string{
			"prefill " + serves.name + " http://10.0.0.1:8000 at ",
			"decode left: pod " + joins.name + " of the decode pool: pod " + serves.name + " has its address " +
				"http://10.0.0.1:8000; delete the pod that does not run any more",
		}
		if got := lines(all); !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}

// When the API server loses contact with the nodes, all pods become unready at once. Then the pods stay in
// use, except pods that are being deleted.
func TestAPoolWithoutAReadyPodStaysInUse(t *testing.T) {
	s := specFor(t, `decode: {selector: app=vllm}`)
	was := map[string]bool{"d0": true, "d1": true}
	in, out := "decode %s http://10.0.0.%d:8000 at ", "decode %s http://10.0.0.%d:8000 at , drain"
	const told = "decode left: no pod of the decode pool is Ready: its members stay in use while their " +
		"engines answer; see kubectl describe pods"
	for _, c := range []struct {
		d0, d1 string
		want   []string
	}{
		{"r", "r", []string{fmt.Sprintf(in, "d0", 0), fmt.Sprintf(in, "d1", 1)}},
		{"", "r", []string{fmt.Sprintf(out, "d0", 0), fmt.Sprintf(in, "d1", 1)}},
		{"", "", []string{fmt.Sprintf(in, "d0", 0), fmt.Sprintf(in, "d1", 1), told}},
		{"", "d", []string{fmt.Sprintf(in, "d0", 0), fmt.Sprintf(out, "d1", 1), told}},
		{"rd", "d", []string{fmt.Sprintf(out, "d0", 0), fmt.Sprintf(out, "d1", 1)}},
	} {
		all, _ := s.members(decodePods("d0 10.0.0.0 "+c.d0, "d1 10.0.0.1 "+c.d1, "d2 10.0.0.2"), was)
		if got := lines(all); !slices.Equal(got, c.want) {
			t.Errorf("%q %q: %q, want %q", c.d0, c.d1, got, c.want)
		}
	}
}

// The ranks of a pod are replicas at consecutive ports, from the first port on. The configuration or the
// annotation gives their number. The annotation of a pod with a sidecar names the sidecar's ports. An
// annotation that cannot be used removes no replica.
func TestRanks(t *testing.T) {
	one := []string{"decode d0 http://10.0.0.1:8200 at "}
	two := []string{
		"decode d0-rank-0 http://10.0.0.1:8200 at ", "decode d0-rank-1 http://10.0.0.1:8201 at ",
	}
	for _, c := range []struct {
		ranks, active string // - for no annotation
		want          []string
		told          string
	}{
		{"0", "-", one, ""},
		{"2", "-", two, ""},
		{"0", "8200, 8201", two, ""},
		{"0", "8001,8000", two, ""}, // the sidecar's ports
		{"2", "8001", two[1:], ""},
		{"0", "8001", two[1:], ""},
		{"2", "8000,8001,8002", two, ""},
		{"0", "8000", one, ""},
		{"0", "", nil, ""}, // no rank serves yet
		{"0", "8000;8001", one, "write numbers of ports, such as 8000,8001"},
		{"2", "9000", two, "ports of no sidecar and not those from 8200 on; the ports are engine 8200"},
	} {
		s := specFor(t, `decode: {selector: app=vllm, ranks: `+c.ranks+`, events: {endpoint: "tcp://*:5557"}}`)
		pods := decodePods("d0 10.0.0.1 r")
		pods[0].ports = []port{
			{name: "engine", number: 8200}, {name: "a", number: 8000, sidecar: true}, {number: 8001, sidecar: true},
		}
		if c.active != "-" {
			pods[0].active = &c.active
		}
		all, is := s.members(pods, nil)
		got := lines(all)
		if n := len(c.want); c.told == "" && len(got) != n || !slices.Equal(got[:min(n, len(got))], c.want) ||
			is["d0"] != (n > 0) || !strings.Contains(strings.Join(got[min(n, len(got)):], ""), c.told) {
			t.Errorf("%s ranks, annotation %q: %q, want %q and %q", c.ranks, c.active, got, c.want, c.told)
		}
		for _, r := range all[0].Replicas {
			_, port, _ := strings.Cut(r.URL, ":82")
			want := "tcp://10.0.0.1:" + map[string]string{"00": "5557", "01": "5558"}[port]
			if r.Events.Endpoint != want {
				t.Errorf("%s has its events at %s, want %s", r.ID(), r.Events.Endpoint, want)
			}
		}
	}
}

// Gateways send requests to the target ports of an InferencePool: one for each rank. If no port is set,
// these are the engines' ports, unless the pod declares a sidecar.
func TestTargetPorts(t *testing.T) {
	for _, c := range []struct {
		port, sidecar, active string // active - for no annotation
		targets               []int
		want                  string // replicas as NAME=PORT:GATEWAY PORT
	}{
		{"8200", "8000", "-", []int{8000}, "d0=8200:8000"},
		{"", "8000", "-", []int{8000}, "d0=8200:8000"},
		{"", "", "-", []int{9000}, "d0=9000:9000"},
		{"", "8000", "-", []int{8000, 8001}, "d0-rank-0=8200:8000 d0-rank-1=8201:8001"},
		{"", "", "-", []int{9000, 7000}, "d0-rank-0=9000:9000 d0-rank-1=7000:7000"},
		{"", "", "7000", []int{9000, 7000}, "d0-rank-1=7000:7000"},
		{"engine", "8000", "8001", []int{8000, 8001}, "d0-rank-1=8201:8001"},
		{"engine", "", "8001", []int{8000, 8001}, "d0-rank-1=8201:8001"}, // the pod does not declare the sidecar
		{"engine", "8000", "8000", []int{8000, 8001}, "d0=8200:8000"},
	} {
		s := specFor(t, `inference_pool: llm, decode: {selector: app, port: `+strconv.Quote(c.port)+`}`).
			inside(inferencePool{selector: labels.SelectorFromSet(labels.Set{"app": "vllm"}), ports: c.targets})
		pods := decodePods("d0 10.0.0.1 r", "d1 10.0.0.2 r")
		pods[0].ports = []port{{name: "engine", number: 8200}}
		if c.sidecar != "" {
			number, _ := strconv.Atoi(c.sidecar)
			pods[0].ports = append(pods[0].ports, port{number: int32(number), sidecar: true})
		}
		if c.active != "-" {
			pods[0].active = &c.active
		}
		pods[1].labels = map[string]string{"app": "other"}
		all, _ := s.members(pods, nil)
		var got []string
		for _, r := range all[0].Replicas {
			_, at, _ := strings.Cut(r.URL, "10.0.0.1:")
			got = append(got, fmt.Sprintf("%s=%s:%d", r.ID(), at, r.GatewayPort))
		}
		if is := strings.Join(got, " "); is != c.want || len(all[0].left) > 0 {
			t.Errorf("%+v: %s, %q", c, is, all[0].left)
		}
	}
}

// The ranks of a pod in both pools are one engine each.
func TestRanksInBothPools(t *testing.T) {
	s := specFor(t, `prefill: {selector: app=vllm, ranks: 2}, decode: {selector: app=vllm, ranks: 3}`)
	all, _ := s.members(decodePods("x 10.0.0.1 r"), nil)
	want := []string{
		"prefill x-rank-0 http://10.0.0.1:8000 at , shared", "prefill x-rank-1 http://10.0.0.1:8001 at , shared",
		"decode 10.0.0.1:8002 http://10.0.0.1:8002 at ",
		"decode x-rank-0 http://10.0.0.1:8000 at , shared", "decode x-rank-1 http://10.0.0.1:8001 at , shared",
	}
	if got := lines(all); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Pods that match but were never Ready are reported: the pool is empty, but its selector is right.
func TestNoPodIsReadyYet(t *testing.T) {
	s := specFor(t, `decode: {selector: app=vllm}`)
	all, _ := s.members(decodePods("d0 10.0.0.1", "d1 -"), nil)
	want := []string{"decode left: no pod of the decode pool is Ready yet; see kubectl describe pods"}
	if got := lines(all); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A pod in both pools is one engine: it stays in use in both if one pool needs it.
func TestAPodInBothPoolsStaysInUse(t *testing.T) {
	s := specFor(t, `prefill: {selector: app=vllm}, decode: {selector: "app=vllm,!only"}`)
	pods := decodePods("both 10.0.0.1", "p 10.0.0.2 r")
	pods[1].labels = map[string]string{"app": "vllm", "only": "prefill"}
	all, _ := s.members(pods, map[string]bool{"both": true})
	got := lines(all)[:3]
	want := []string{
		"prefill both http://10.0.0.1:8000 at , shared", "prefill p http://10.0.0.2:8000 at ",
		"decode both http://10.0.0.1:8000 at , shared",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// An older state of an InferencePool is ignored as that of a pod. A new InferencePool of the name counts.
func TestAnOlderStateOfAnInferencePoolIsIgnored(t *testing.T) {
	s := newStore(&watcher{spec: &spec{inferencePool: "pool"}, heard: func(error) {}, found: func([]found) {}})
	_ = s.pools.Replace(nil, "")
	for _, step := range []struct{ uid, version, app, want string }{
		{"1", "7", "new", "new"},
		{"1", "6", "old", "new"},
		{"1", "8", "newer", "newer"},
		{"2", "5", "other", "other"},
	} {
		p := &apiObject{}
		p.Name, p.UID = "pool", types.UID(step.uid)
		p.ResourceVersion = step.version
		p.Spec.Selector.MatchLabels = map[string]string{"app": step.app}
		if err := s.pools.Update(p); err != nil {
			t.Fatal(err)
		}
		if got := s.within.within.selector.String(); got != "app="+step.want {
			t.Errorf("after version %s of %s it selects %s, want app=%s", step.version, step.uid, got, step.want)
		}
	}
}

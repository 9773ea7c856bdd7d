package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// advised are the flags that the doctor recommends for an engine of this role without any flags.
func advised(role replica.Role) []string {
	pools := config.Pools{
		Prefill: config.Pool{Replicas: []config.Replica{{}}}, Decode: config.Pool{Replicas: []config.Replica{{}}},
	}
	bare := &server{role: role, fleet: &fleet{cfg: &config.Config{Pools: pools}, roles: true}}
	untold := &rank{s: bare, trial: &trial{}}
	untold.trial.second.cached = -1
	text := strings.Join([]string{
		"start the engine with " + setup.KV{Connector: "NixlConnector"}.Flag(role), publish,
		detailsThere(untold).do,
	}, "\n")
	flags := regexp.MustCompile(`--[a-z-]+(?: '[^']*')?`).FindAllString(text, -1)
	for i, flag := range flags {
		flags[i] = strings.ReplaceAll(strings.Replace(flag, " ", "=", 1), "'", "")
	}
	return flags
}

// The engines of the compose file for GPUs are started with the flags that the doctor recommends. They
// keep prefixes and name their own side channel, and the router has exactly these engines.
func TestComposeFileTakesTheAdvice(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "vllm-nixl", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
			Command     []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	pins, err := os.ReadFile(filepath.Join("..", "..", "tools", "e2evllm", "pins.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]replica.Role{"p0": replica.Prefill, "d0": replica.Decode} {
		service := file.Services[name]
		flags := advised(role)
		if len(flags) != 3 {
			t.Fatalf("got the recommended flags %q, want 3 of them", flags)
		}
		for _, flag := range flags {
			if !slices.Contains(service.Command, flag) {
				t.Errorf("got command %q for %s, want flag %s in it", service.Command, name, flag)
			}
		}
		if slices.Contains(service.Command, "--no-enable-prefix-caching") {
			t.Errorf("%s runs with --no-enable-prefix-caching, want prefix caching", name)
		}
		if host := service.Environment["VLLM_NIXL_SIDE_CHANNEL_HOST"]; host != name {
			t.Errorf("got side channel host %q for %s, want %q", host, name, name)
		}
		version := strings.TrimPrefix(service.Image, "vllm/vllm-openai:v")
		if !strings.Contains(string(pins), "\nvllm-cpu=="+version+"\n") {
			t.Errorf("%s has image %s, want the version of the tests with real engines", name, service.Image)
		}
		if router := strings.Join(file.Services["tandem"].Command, " "); !strings.Contains(router,
			"--"+role.String()+" http://"+name+":8000") {
			t.Errorf("got router command %q, want --%s with the URL of %s in it", router, role, name)
		}
	}
}

// The README starts engines with the flags that the doctor recommends.
func TestReadmeTakesTheAdvice(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range advised(replica.Prefill) {
		want := flag
		if name, value, ok := strings.Cut(flag, "="); ok {
			want = name + " '" + value + "'"
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("README.md starts engines without the flag %s", want)
		}
	}
}

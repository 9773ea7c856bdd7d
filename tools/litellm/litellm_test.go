package litellm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/tools/pinned"
)

func TestPins(t *testing.T) {
	if err := pinned.Check(pins, "litellm", Version); err != nil {
		t.Error(err)
	}
}

func TestCommand(t *testing.T) {
	_, args, err := Proxy{dir: "there"}.Command("127.0.0.1:1", "c.yaml")
	line := strings.Join(args, " ")
	for _, want := range []string{
		filepath.Join("there", "venv", "bin", "python"), "--config c.yaml", "--host 127.0.0.1 --port 1",
	} {
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("%q is not in %q, %v", want, line, err)
		}
	}
	if _, _, err := (Proxy{}).Command("nowhere", "c.yaml"); err == nil {
		t.Error("an address without a port passes")
	}
}

func TestConfig(t *testing.T) {
	text, err := Config("m", "127.0.0.1:6379", []string{"http://a:1", "http://b:1"})
	for _, want := range []string{
		`{model: "openai/m", api_base: "http://b:1/v1", api_key: none}`,
		`cache_params: {type: redis, host: "127.0.0.1", port: 6379}`,
	} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s%v", want, text, err)
		}
	}
	if _, err := Config("m", "nowhere", nil); err == nil {
		t.Error("a server without a port passes")
	}
}

package setup_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/setup"
)

// A name with several addresses is reported with the setting to write. A long list is cut.
func TestAddresses(t *testing.T) {
	some := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	seen, do := setup.Addresses("https://vllm:8000", "decode", some)
	if want := "vllm has 2 addresses (10.0.0.1, fd00::1), and Tandem takes it for one replica"; seen != want {
		t.Errorf("seen %q, want %q", seen, want)
	}
	const line = `discovery: {dns: {decode: ["https://vllm:8000"]}}`
	if want := "take it out of pools.decode.replicas, and write " + line; do != want {
		t.Errorf("do %q, want %q", do, want)
	}
	if c, err := config.Parse("line", []byte(line)); err != nil || len(c.Discovery.DNS.Decode) != 1 {
		t.Errorf("the line cannot be written: %v", err)
	}
	var many []netip.Addr
	for i := range 9 {
		many = append(many, netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i)))
	}
	if seen, _ = setup.Addresses("http://vllm", "", many); !strings.Contains(seen, "10.0.0.7, and 1 more)") {
		t.Errorf("%q: want eight of nine", seen)
	}
}

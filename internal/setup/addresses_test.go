package setup_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/setup"
)

// A name with several addresses is told with the lines to write; a long list is cut.
func TestAddresses(t *testing.T) {
	some := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	seen, do := setup.Addresses("https://vllm:8000", "decode", some)
	if want := "vllm has 2 addresses (10.0.0.1, fd00::1), and Tandem takes it for one replica"; seen != want {
		t.Errorf("seen %q, want %q", seen, want)
	}
	if want := `write one replica for each: pools.decode.replicas: [{url: "https://10.0.0.1:8000"}, ` +
		`{url: "https://[fd00::1]:8000"}]`; do != want {
		t.Errorf("do %q, want %q", do, want)
	}
	var many []netip.Addr
	for i := range 9 {
		many = append(many, netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i)))
	}
	seen, do = setup.Addresses("http://vllm", "", many)
	if !strings.Contains(seen, "10.0.0.7, and 1 more)") ||
		!strings.HasSuffix(do, `pools.POOL.replicas: [`+listed(8)+`], and 1 more`) {
		t.Errorf("%q, %q: want eight of nine", seen, do)
	}
}

func listed(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{url: "http://10.0.0.%d"}`, i))
	}
	return strings.Join(all, ", ")
}

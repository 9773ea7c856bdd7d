package doctor

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// If the host name of a replica has several addresses, the doctor warns and writes the discovery setting.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	s := up(t, sound())
	find := func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
	}
	c := pools(nil, []*enginesim.Server{s})
	port := s.URL()[strings.LastIndexByte(s.URL(), ':'):]
	c.Pools.Decode.Replicas[0].URL = "http://localhost" + port
	r := examine(t, Options{Config: c, Passive: true, Timeout: 20 * time.Second, LookUp: find})
	want(t, r, "warning several-addresses decode d0")
	if do := `discovery: {dns: {decode: ["http://localhost` + port + `"]}}`; !strings.Contains(
		strings.Join(strings.Fields(text(t, r)), " "), do) {
		t.Errorf("the report lacks the setting %s; got\n%s", do, text(t, r))
	}
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/engine"
)

// Several returns the addresses of a name that has several machines. It returns none for a name of one
// machine, even with one address of each family, and does not look up an IP address.
func TestSeveral(t *testing.T) {
	for host, c := range map[string]struct{ found, want string }{
		"one":       {"10.0.0.1", ""},
		"headless":  {"10.0.0.2 10.0.0.1 10.0.0.2", "[10.0.0.1 10.0.0.2]"},
		"mapped":    {"::ffff:10.0.0.1 10.0.0.1", ""},
		"dual":      {"10.0.0.1 fd00::1 2001:db8::1", ""},
		"six":       {"fd00::2 fd00::1", "[fd00::1 fd00::2]"},
		"localhost": {"::1 127.0.0.1", ""},
		"own name":  {"127.0.1.1 10.0.0.1", ""},
		"10.0.0.9":  {"10.0.0.1 10.0.0.2", ""},
		"[fd00::9]": {"10.0.0.1 10.0.0.2", ""},
	} {
		find := func(ctx context.Context, network, name string) (all []netip.Addr, err error) {
			if _, bounded := ctx.Deadline(); !bounded || network != "ip" || name != strings.Trim(host, "[]") {
				t.Errorf("%s: got a query for %s %s, deadline %t; want ip, the name, true", host, network, name, bounded)
			}
			for text := range strings.FieldsSeq(c.found) {
				all = append(all, netip.MustParseAddr(text))
			}
			return all, nil
		}
		got, err := engine.Several(t.Context(), "http://"+strings.ReplaceAll(host, " ", "-")+":8000",
			func(ctx context.Context, network, name string) ([]netip.Addr, error) {
				return find(ctx, network, strings.ReplaceAll(name, "-", " "))
			})
		if text := fmt.Sprint(got); err != nil || text != c.want && (c.want != "" || len(got) > 0) {
			t.Errorf("%s: got %v, %v; want %s", host, got, err, c.want)
		}
	}
	none := func(context.Context, string, string) ([]netip.Addr, error) { return nil, errors.New("no") }
	if got, err := engine.Several(t.Context(), "http://x:1", none); err == nil || got != nil {
		t.Errorf("got %v, %v; want an error", got, err)
	}
}

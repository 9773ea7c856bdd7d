package fleet

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
)

// A replica whose name has two addresses is reported in one line, with the setting to write.
func TestANameWithSeveralAddressesIsSaid(t *testing.T) {
	var log bytes.Buffer
	w, _ := learned(t, &log)
	w.fleet.opt.LookUp = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
	}
	w.warnOfAddresses(t.Context())
	text := log.String()
	if strings.Count(text, "has several addresses") != 1 || !strings.Contains(text, "discovery: {dns: {") {
		t.Errorf("want one line with what to write:\n%s", text)
	}
}

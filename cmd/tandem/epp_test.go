package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// A decode replica with a host name gets a warning with the remedy. A replica with an IP address gets
// none.
func TestThePickerWarnsOfNames(t *testing.T) {
	var log bytes.Buffer
	c := config.FromFlags("", []string{"http://prefill:8000"},
		[]string{"http://10.0.0.2:8200", "http://[::1]:8200", "http://engine:8200"})
	warnOfNames(c, slog.New(slog.NewTextHandler(&log, nil)))
	said := log.String()
	if strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "url=http://engine:8200") {
		t.Error(said)
	}
}

func TestThePickersCommandLine(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"epp", "--decode", "http://127.0.0.1:1", "--sidecar-port", "70000"}
	code := run(t.Context(), args, &out, &errs)
	if code != exitUsage || !strings.Contains(errs.String(), "1 to 65535") {
		t.Errorf("code %d: %s", code, errs.String())
	}
}

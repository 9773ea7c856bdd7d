package engine

import "testing"

// Each connector has series of its own. The series of MooncakeStore begin as those of Mooncake do.
func TestConnectorOfSeries(t *testing.T) {
	for series, want := range map[string]string{
		"nixl_num_failed_transfers_total":     "nixl",
		"moriio_xfer_time_seconds_count":      "moriio",
		"mooncake_num_failed_transfers_total": "mooncake",
		"mooncake_store_put_total":            "mooncake-store",
		"kv_offload_total_bytes_total":        "offloading",
		"num_requests_running":                "",
		"kv_cache_usage_perc":                 "",
	} {
		var s shown
		if s.look([]byte(series)); s.connector() != want {
			t.Errorf("%s shows the connector %q, want %q", series, s.connector(), want)
		}
	}
	var s shown
	s.look([]byte("mooncake_num_failed_transfers_total"))
	s.look([]byte("kv_offload_total_bytes_total"))
	if s.firstOf() != "mooncake" || s.connector() != "mooncake" {
		t.Errorf("of two connectors, the first is %q and %q counts", s.firstOf(), s.connector())
	}
}

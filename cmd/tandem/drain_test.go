package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The time of a wait ends during a request to the router. That is frequent when both times are whole
// seconds. The error does not blame the router.
func TestTheEndOfAWaitIsNoFailureOfTheRouter(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	router := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel(errNotInTime)
		<-r.Context().Done()
	}))
	t.Cleanup(router.Close)
	d := drainOrder{out: io.Discard, admin: router.URL, name: "d0"}
	err := d.wait(ctx)
	want := "d0 is not empty: not in time"
	if err == nil || err.Error() != want || !errors.Is(err, errNotInTime) {
		t.Errorf("the error is %q, want %q", err, want)
	}
}

package why

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

var (
	// ErrToken is returned if a router requires another token than it got.
	ErrToken = errors.New("the admin token (admin.token) is needed at")
	// ErrNotAdmin is returned if the answer does not come from a router's admin listener, but from its front or
	// an engine, for example.
	ErrNotAdmin = errors.New("this is not a Tandem admin listener")
)

// nameIt explains how to name the admin listener on the command line.
const nameIt = "try port 9091, or name the listener with --admin (admin.listen in the router's file)"

// Ask sends a request without a body to a path, which may have a query, of the admin listener at base. token
// is its token; "" for none. The caller must close the answer's body. An answer that no admin listener gives
// is [ErrNotAdmin].
func Ask(ctx context.Context, method, base, token, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(base, "/")+"/"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req) //nolint:gosec // the operator names it
	if err != nil {
		return nil, unanswered(base, err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < http.StatusBadRequest && (kind == "application/json" || kind == "text/event-stream"):
		return resp, nil
	case resp.StatusCode < http.StatusBadRequest:
		_ = resp.Body.Close()
		return nil, notAdmin(base, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	var said struct{ Error json.RawMessage }
	ours := json.Unmarshal(body, &said) == nil && bytes.HasPrefix(said.Error, []byte(`"`))
	switch {
	case err != nil:
		return nil, unanswered(base, err)
	case !ours:
		return nil, notAdmin(base, resp)
	case resp.StatusCode != http.StatusUnauthorized:
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return resp, nil
	case token == "":
		return nil, fmt.Errorf("%w %s: put it into TANDEM_ADMIN_TOKEN", ErrToken, base)
	}
	return nil, fmt.Errorf("%w %s: TANDEM_ADMIN_TOKEN has another one", ErrToken, base)
}

func notAdmin(base string, resp *http.Response) error {
	return fmt.Errorf("%s answers %s: %w; %s", base, resp.Status, ErrNotAdmin, nameIt)
}

// unanswered explains why a request got no answer.
func unanswered(base string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the URL is said already
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s is silent: the router, or its machine, stands still, a firewall drops packets, or "+
			"the address is wrong; %s: %w", base, nameIt, err)
	}
	return fmt.Errorf("%s cannot be asked: %w; see that the router runs there; %s", base, err, nameIt)
}

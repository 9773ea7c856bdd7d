package why

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNotFound says that no record of the request was found.
var ErrNotFound = errors.New("no record of that request")

// InFiles returns the newest record of the request with this id. The id is the router's or the client's. It
// reads the file at path and the rotated files beside it.
func InFiles(path, id string) (*Record, error) {
	files, err := asideOf(path)
	if err != nil {
		return nil, err
	}
	for i, file := range files {
		r, err := inFile(file, id)
		if i > 0 && errors.Is(err, os.ErrNotExist) {
			continue // the router has just deleted it
		}
		if r != nil || err != nil {
			return r, err
		}
	}
	return nil, fmt.Errorf("%w in %s and %d older files", ErrNotFound, path, len(files)-1)
}

// asideOf lists the file at path and its rotated files, the newest first. A rotated file has the time before
// its extension.
func asideOf(path string) ([]string, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	ext := filepath.Ext(path)
	older, err := filepath.Glob(strings.TrimSuffix(path, ext) + "-*" + ext)
	if err != nil { // the name holds a bracket
		older = nil
	}
	slices.Sort(older)
	slices.Reverse(older)
	return append([]string{path}, older...), nil
}

// inFile returns the last record of the request in one file; nil if there is none. It skips a line that was
// cut off by a full disk.
func inFile(file, id string) (found *Record, err error) {
	f, err := os.Open(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines, quoted := bufio.NewReaderSize(f, 1<<20), []byte(`"`+id+`"`)
	for {
		line, err := lines.ReadBytes('\n')
		if bytes.Contains(line, quoted) {
			r := &Record{}
			if json.Unmarshal(line, r) == nil && (r.ID == id || r.ClientID == id) {
				found = r
			}
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// At asks the router whose admin listener is at base for the record. token is its admin token, "" for none.
func At(ctx context.Context, base, token, id string) (*Record, error) {
	resp, err := Ask(ctx, http.MethodGet, base, token, "debug/decisions/"+url.PathEscape(id))
	if errors.Is(err, ErrToken) || errors.Is(err, ErrNotAdmin) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w; or name a file of decisions with --file", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf(
			"%w at %s: the router keeps the newest records in memory (decisions.ring) and more in a file "+
				"(decisions.file); an answer from the answer cache (X-Cache: HIT) has no record", ErrNotFound, base,
		)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s: %.200s", base, resp.Status, bytes.TrimSpace(body))
	}
	r := &Record{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%s answers something that is no record: %w", base, err)
	}
	return r, nil
}

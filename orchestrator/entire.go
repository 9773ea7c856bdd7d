package orchestrator

import (
	"errors"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/rawjson"
)

var errUnended = errors.New(
	"the answer ends with its connection, and is no complete JSON: it may have been cut",
)

// errNoAnswer is the error of a 200 without generated content: an error page, or an empty body. A proxy
// before an engine can answer so, and vLLM 0.26 after a failed load of blocks.
var errNoAnswer = errors.New("status 200, and no answer in it")

// entire appends the whole body of a good answer to dst. If only the end of the connection ends the answer, a
// cut answer looks whole. Then the answer must be complete JSON. vLLM gives a length or chunks to every
// answer, but a proxy before vLLM may not.
func entire(resp *engine.Response, dst []byte, limit int64) ([]byte, error) {
	start := len(dst)
	dst, err := resp.AppendAll(dst, limit)
	if err != nil || resp.Delimited() {
		return dst, err
	}
	s := rawjson.Scanner{Data: dst[start:]}
	s.Skip()
	s.End()
	if s.Err() != nil {
		return dst, errUnended
	}
	return dst, nil
}

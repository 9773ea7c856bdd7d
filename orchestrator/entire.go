package orchestrator

import (
	"errors"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/rawjson"
)

var errUnended = errors.New(
	"the answer ends with its connection, and is no complete JSON: it may have been cut",
)

// errNoAnswer is a 200 that holds nothing generated: an error page, or nothing. A proxy in front of an engine
// can answer so, and vLLM 0.26 after a failed load of blocks.
var errNoAnswer = errors.New("status 200, and no answer in it")

// entire appends the body of a good answer to dst, to its end. If only the end of the connection ends an
// answer, a cut answer looks whole: then its JSON has to be complete. vLLM gives a length or chunks to every
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

package enginesim

import (
	"bytes"
	"strconv"
)

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// appendFloat appends f as Python writes it: 0.0 keeps its point.
func appendFloat(dst []byte, f float64) []byte {
	at := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	if !bytes.ContainsAny(dst[at:], ".eIN") {
		dst = append(dst, ".0"...)
	}
	return dst
}

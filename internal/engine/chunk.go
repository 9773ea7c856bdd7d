package engine

// chunks takes the chunked coding off a body, piece by piece as it arrives:
//
//	size [;extension] CRLF  data CRLF  ...  0 CRLF  [name: value CRLF ...]  CRLF
//
// Line ends must be CRLF and sizes plain hex: a proxy in front may read lenient input in another way.
type chunks struct {
	state  chunkState
	digits int   // hex digits of the size so far
	left   int64 // bytes of data left in this chunk
	line   int   // bytes of extension in this chunk, or of the whole trailer
}

type chunkState uint8

const (
	chunkSize      chunkState = iota // hex digits
	chunkExtension                   // up to CR
	chunkSizeLF                      // LF behind the size
	chunkData
	chunkDataCR   // CR behind the data
	chunkDataLF   // LF behind the data
	trailerStart  // a name, or the CR of the last line
	trailerName   // up to the colon
	trailerValue  // up to CR
	trailerLF     // LF behind a trailer line
	chunksLastLF  // LF of the blank line
	chunksDone    // the body is over
	maxDigits     = 15
	maxExtensions = 1 << 10 // bytes in one chunk
	maxTrailer    = 8 << 10 // bytes in all
)

// decode moves the data of b to its front: b[:n] is body, b[:used] has been read. It stops where the body
// ends or is malformed; n counts the good bytes before an error.
func (c *chunks) decode(b []byte) (n, used int, err error) {
	for used < len(b) && c.state != chunksDone {
		if c.state == chunkData {
			m := int(min(c.left, int64(len(b)-used)))
			if n != used {
				copy(b[n:], b[used:used+m])
			}
			n += m
			used += m
			c.left -= int64(m)
			if c.left == 0 {
				c.state = chunkDataCR
			}
			continue
		}
		if err := c.step(b[used]); err != nil {
			return n, used, err
		}
		used++
	}
	return n, used, nil
}

// step takes one byte that is not data.
func (c *chunks) step(b byte) error {
	switch c.state {
	case chunkSize:
		return c.sizeByte(b)
	case chunkExtension:
		return c.lineByte(b, chunkSizeLF, maxExtensions)
	case chunkSizeLF:
		return c.expect(b, '\n', c.afterSize())
	case chunkDataCR:
		return c.expect(b, '\r', chunkDataLF)
	case chunkDataLF:
		c.digits = 0
		c.left = 0
		c.line = 0
		return c.expect(b, '\n', chunkSize)
	case trailerStart:
		return c.trailerByte(b)
	case trailerName:
		return c.nameByte(b)
	case trailerValue:
		return c.lineByte(b, trailerLF, maxTrailer)
	case trailerLF:
		return c.expect(b, '\n', trailerStart)
	default: // chunksLastLF
		return c.expect(b, '\n', chunksDone)
	}
}

func (c *chunks) expect(got, want byte, next chunkState) error {
	if got != want {
		return ProtocolError("chunk is not framed by CRLF")
	}
	c.state = next
	return nil
}

func (c *chunks) afterSize() chunkState {
	if c.left > 0 {
		return chunkData
	}
	c.line = 0
	return trailerStart
}

func (c *chunks) sizeByte(b byte) error {
	v := hexValue(b)
	switch {
	case v >= 0 && c.digits < maxDigits:
		c.left, c.digits = c.left<<4|int64(v), c.digits+1
	case v >= 0:
		return ProtocolError("chunk size is too long")
	case c.digits == 0:
		return ProtocolError("chunk has no size")
	case b == ';':
		c.state = chunkExtension
	case b == '\r':
		c.state = chunkSizeLF
	default:
		return ProtocolError("chunk size is not hexadecimal")
	}
	return nil
}

// lineByte reads a byte of text; a CR leads to next.
func (c *chunks) lineByte(b byte, next chunkState, limit int) error {
	if b == '\r' {
		c.state = next
		return nil
	}
	if c.line++; c.line > limit || class[b]&inValue == 0 {
		return ProtocolError("chunk extension or trailer is too long or has a control character")
	}
	return nil
}

func (c *chunks) trailerByte(b byte) error {
	if b == '\r' {
		c.state = chunksLastLF
		return nil
	}
	if class[b]&inToken == 0 {
		return ProtocolError("trailer line has no name")
	}
	c.state = trailerName
	c.line++
	return nil
}

func (c *chunks) nameByte(b byte) error {
	if c.line++; c.line > maxTrailer {
		return ProtocolError("trailer is too long")
	}
	switch {
	case b == ':':
		c.state = trailerValue
	case class[b]&inToken == 0:
		return ProtocolError("trailer line has no name")
	}
	return nil
}

func hexValue(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

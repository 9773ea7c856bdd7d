package http1

// input is the bytes that were read from the connection.
type input struct {
	buf  [bufferSize]byte
	r, w int // buf[r:w] has been read and not used
	skip int // how many bytes of line breaks may come before the next request
}

func (c *input) skipBreaks() {
	for c.skip > 0 && c.r < c.w && (c.buf[c.r] == '\r' || c.buf[c.r] == '\n') {
		c.r++
		c.skip--
	}
}

// slide moves the unused bytes to the front of the buffer.
func (c *input) slide() {
	c.w = copy(c.buf[:], c.buf[c.r:c.w])
	c.r = 0
}

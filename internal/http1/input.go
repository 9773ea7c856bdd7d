package http1

// input is what has been read of the connection.
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

// slide moves what is not used to the front of the buffer.
func (c *input) slide() {
	c.w = copy(c.buf[:], c.buf[c.r:c.w])
	c.r = 0
}

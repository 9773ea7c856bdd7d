package enginesim

import "strconv"

// respond answers with a whole body. finish writes the answer, after the reader has set the idle deadline.
func (k *call) respond(status int, contentType string, body []byte) {
	k.respondWith(status, contentType, body, "", "")
}

// respondWith is respond with one more header, at uvicorn's position.
func (k *call) respondWith(status int, contentType string, body []byte, name, value string) {
	k.out = appendStatus(k.out[:0], status)
	if name != "" {
		k.out = appendField(k.out, name, value)
	}
	k.out = append(k.out, "content-length: "...)
	k.out = append(appendInt(k.out, len(body)), "\r\n"...)
	k.out = k.appendCommon(k.out, contentType)
	k.out = append(append(k.out, "\r\n"...), body...)
	k.begun = false
}

func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(appendInt(dst, status), ' ')
	dst = append(dst, statusText(status)...)
	return append(dst, "\r\nserver: uvicorn\r\n"...)
}

func statusText(status int) string {
	switch status {
	case 200:
		return "OK"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 429:
		return "Too Many Requests"
	case 500:
		return "Internal Server Error"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	}
	return "Status"
}

func appendField(dst []byte, name, value string) []byte {
	return append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
}

// appendCommon writes the headers of every answer.
func (k *call) appendCommon(dst []byte, contentType string) []byte {
	if contentType != "" {
		dst = appendField(dst, "content-type", contentType)
	}
	dst = append(dst, "vary: Origin\r\n"...)
	if k.c.srv.o.NoRequestIDs {
		return dst
	}
	dst = append(dst, "x-request-id: "...)
	if k.head.requestID != "" {
		dst = append(dst, k.head.requestID...)
	} else {
		dst = appendHex(appendHex(dst, randomWord(), 16), randomWord(), 16)
	}
	return append(dst, "\r\n"...)
}

// stream begins an event stream.
func (k *call) stream() {
	k.begun = true
	k.out = k.appendCommon(appendStatus(k.out[:0], 200), "text/event-stream; charset=utf-8")
	if k.head.old {
		k.head.close = true
		k.out = append(k.out, "\r\n"...)
		return
	}
	k.out = append(k.out, "transfer-encoding: chunked\r\n\r\n"...)
}

// event adds one complete server-sent event, with its blank line, as one chunk.
func (k *call) event(b []byte) {
	if k.broken {
		return
	}
	if k.head.old {
		k.out = append(k.out, b...)
	} else {
		k.out = strconv.AppendUint(k.out, uint64(len(b)), 16)
		k.out = append(append(append(k.out, "\r\n"...), b...), "\r\n"...)
	}
	if k.events++; k.fault.cut > 0 && k.events >= k.fault.cut {
		k.fault.cut = 0
		if k.fault.fails {
			k.event(append(appendSpacedError([]byte("data: "), internalError), "\n\n"...))
			k.event([]byte(done))
		}
		k.flush()
		if k.fault.silent {
			k.hang()
		}
		k.broken = true
	}
}

// flush writes the buffered output. After an error the call is broken.
func (k *call) flush() {
	if len(k.out) == 0 || k.broken {
		return
	}
	k.c.srv.waitFrozen(k.c.gone)
	if k.c.srv.faults.armed.Load() {
		k.c.last = append(k.c.last, k.out...)
	}
	if _, err := k.c.nc.Write(k.out); err != nil {
		k.broken = true
	}
	k.out = k.out[:0]
}

// hang waits until the client disconnects.
func (k *call) hang() {
	select {
	case <-k.c.gone:
	case <-k.c.srv.life.ctx.Done():
	}
}

// finish writes the rest of the answer and ends it.
func (k *call) finish() {
	if k.begun && !k.head.old && !k.broken {
		k.out = append(k.out, "0\r\n\r\n"...)
	}
	k.flush()
}

package scoring

import "time"

// Goals are the times that a request's class asks for. A goal of 0 is none.
type Goals struct {
	TTFT     time.Duration // from the request's arrival until its first token
	TPOT     time.Duration // mean time from token to token
	Deadline time.Duration // from the request's arrival until its last token
}

package answercache

import "time"

// Answer is a whole answer to a question. It is immutable.
type Answer struct {
	Made        time.Time // when its computation began: it may lack later changes
	ContentType string
	Stream      bool // Body is all events of a stream
	Events      int  // how many
	Body        []byte
	Makers      []Maker
}

// Maker is an engine process that took part in an answer.
type Maker struct {
	Replica string  // its name
	Server  string  // its address
	Started float64 // when the process began, unix seconds
}

// Age is how old the answer is at now.
func (a *Answer) Age(now time.Time) time.Duration { return max(0, now.Sub(a.Made)) }

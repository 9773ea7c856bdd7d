// Package why shows a recorded decision as a page of text. It finds the record, writes its content, and says
// what other weights would have chosen.
package why

import "time"

// Record is the part of a record that a page shows, as /debug/decisions and decisions.file write it. Missing
// fields are zero, because a file may be from another release.
type Record struct {
	ID        string    `json:"id"`
	ClientID  string    `json:"client_id"`
	Key       string    `json:"key"`     // name of the client's key
	Session   string    `json:"session"` // a part of the hash of the session's id
	Class     string    `json:"class"`
	Time      time.Time `json:"time"`
	Path      string    `json:"path"`
	Model     string    `json:"model"`
	Mode      string    `json:"mode"`
	Streamed  *bool     `json:"streamed"` // nil in records without this field
	Prefill   string    `json:"prefill"`
	Decode    string    `json:"decode"`
	Reason    string    `json:"reason"`
	Prompt    int       `json:"prompt_tokens"`
	Output    int       `json:"output_tokens"`
	Available int       `json:"available_tokens"`
	Captured  int       `json:"captured_tokens"`
	Delivered int       `json:"delivered_tokens"`
	Planned   int       `json:"planned_tokens"`
	Moved     int       `json:"moved_tokens"`
	Unsure    bool      `json:"moved_unsure"`
	Pieces    int       `json:"pieces"`
	Whole     string    `json:"whole"`
	Phases    phases    `json:"phases_ms"`
	Attempts  int       `json:"attempts"`
	Failed    []attempt `json:"failed_attempts"`
	// Why no attempt followed the last failed attempt.
	NotRetried string   `json:"not_retried"`
	Continued  []string `json:"continued"`
	// Why no replica continued a stream that broke off.
	NotContinued string    `json:"not_continued"`
	Status       int       `json:"status"`
	Outcome      string    `json:"outcome"`
	Config       weights   `json:"config"`
	Decision     *decision `json:"decision"`
}

type phases struct {
	Tokenize, Queue, Plan, Prefill, Turn, Handoff, First, Total float64
}

type attempt struct {
	Mode    string  `json:"mode"`
	Prefill string  `json:"prefill"`
	Decode  string  `json:"decode"`
	At      string  `json:"at"`
	Phase   string  `json:"phase"`
	Kind    string  `json:"kind"`
	Status  int     `json:"status"`
	Began   float64 `json:"began_ms"`
	Took    float64 `json:"took_ms"`
}

// weights are the weights in force; Alpha is a number or "auto".
type weights struct {
	Revision      string  `json:"revision"`
	Alpha         string  `json:"alpha"`
	Beta          float64 `json:"beta"`
	Gamma         float64 `json:"gamma"`
	DecodePenalty float64 `json:"decode_penalty"`
}

type decision struct {
	Units    string   `json:"units"`
	Why      string   `json:"why"`
	TTFT     float64  `json:"predicted_ttft_ms"`
	Output   int      `json:"expected_output_tokens"`
	Rules    string   `json:"rules"`
	Compared int      `json:"compared"`
	Ties     int      `json:"ties"`
	Plans    []plan   `json:"plans"`
	Unknown  []string `json:"unknown"`
	Forced   string   `json:"forced"`
	Moved    *struct {
		From, To, Reason string
	} `json:"moved"`
}

// plan is a row of the comparison. Its terms are added up to Total; the chosen plan is the first.
type plan struct {
	Mode      string             `json:"mode"`
	Prefill   string             `json:"prefill"`
	Decode    string             `json:"decode"`
	Terms     map[string]float64 `json:"terms"`
	Total     float64            `json:"total"`
	GBps      float64            `json:"gb_s"` // of its link
	OnPrefill *struct {
		Alpha float64 `json:"alpha"`
	} `json:"on_prefill"`
	OnDecode *struct {
		Alpha  float64 `json:"alpha"`
		Beside float64 `json:"beside_ms"` // part of the prefill term, unweighted
	} `json:"on_decode"`
}

// name returns a short name of a plan.
func (p *plan) name() string { return pair(p.Prefill, p.Decode) }

// pair names the replica that computes a prompt and the one that generates.
func pair(prefill, decode string) string {
	switch {
	case decode == "":
		return "nobody"
	case prefill == "":
		return decode + " alone"
	}
	return prefill + " > " + decode
}

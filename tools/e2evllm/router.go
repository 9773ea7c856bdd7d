package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// router is a running process of the built binary.
type router struct {
	process      *process
	front, admin string
}

// configure writes a file with this name for a router of the running engines: producers prefill, consumers
// decode. more has more lines of the file, one setting each.
func (s *stage) configure(name string, more ...string) (string, error) {
	return s.configureAt(name, nil, more...)
}

// configureAt is configure with other URLs for some engines, by name.
func (s *stage) configureAt(name string, urls map[string]string, more ...string) (string, error) {
	var pools [2][]string
	for _, e := range s.engines {
		at := map[string]int{producer: 0, consumer: 1, alone: 1}
		if i, ok := at[e.Role]; ok {
			member := e.member()
			if url := urls[e.Name]; url != "" {
				member = e.memberAt(url)
			}
			pools[i] = append(pools[i], member)
		}
	}
	text := fmt.Sprintf("pools:\n  prefill: {replicas: [%s]}\n  decode: {replicas: [%s]}\n"+
		"response: {headers: true}\ndecisions: {ring: 20000}\n%s\n%s\n",
		strings.Join(pools[0], ", "), strings.Join(pools[1], ", "), connectorLine(s.engines),
		strings.Join(more, "\n"))
	file := filepath.Join(s.work, "tandem-"+name+".yaml")
	return file, os.WriteFile(file, []byte(text), 0o644)
}

var serving = regexp.MustCompile(`tandem serves on (\S+), admin on (\S+)`)

// serve starts a router with that configuration and returns when every replica is ready.
func (s *stage) serve(ctx context.Context, file string) (*router, error) {
	return s.serveAt(ctx, file, "127.0.0.1:0")
}

func (s *stage) serveAt(ctx context.Context, file, listen string) (*router, error) {
	s.routers++
	p, err := startProcess(fmt.Sprintf("router-%d", s.routers), s.work, nil, s.tandem, "serve", "--config",
		file,
		"--listen", listen, "--admin", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	r := &router{process: p}
	err = eventually(ctx, 30*time.Second, func() error {
		m := serving.FindStringSubmatch(p.logTail(1000))
		if m == nil {
			return errors.New("the router does not listen")
		}
		r.front, r.admin = "http://"+m[1], "http://"+m[2]
		ready, err := get(ctx, r.admin+"/readyz")
		if err == nil && strings.Contains(string(ready), `"ready": false`) {
			err = fmt.Errorf("not every replica is ready: %s", ready)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, p.logTail(20))
	}
	return r, nil
}

// end stops the router, which may take ten seconds.
func (r *router) end() error { return stop([]*process{r.process}, 10*time.Second) }

// record has the fields of a decision that the suite reads.
type record struct {
	ID        string `json:"id"`
	Tokenizer string `json:"tokenizer"`
	Mode      string `json:"mode"`
	Captured  int    `json:"captured_tokens"`
	Delivered int    `json:"delivered_tokens"`
	Prompt    int    `json:"prompt_tokens"`
	Attempts  int    `json:"attempts"`
	Outcome   string `json:"outcome"`
	Prefill   string `json:"prefill"`
	Decode    string `json:"decode"`
	Reason    string `json:"reason"`
	Output    int    `json:"output_tokens"`

	Time   time.Time `json:"time"` // when the request came in
	Phases struct {  // milliseconds
		Tokenize, Queue, Plan, Prefill, Handoff, First, Total float64
	} `json:"phases_ms"`
}

// ended is when its answer was out.
func (r *record) ended() time.Time {
	return r.Time.Add(time.Duration(r.Phases.Total * float64(time.Millisecond)))
}

// sent is when the request went to its decode engine.
func (r *record) sent() time.Time {
	p := r.Phases
	return r.Time.Add(
		time.Duration((p.Tokenize + p.Queue + p.Plan + p.Prefill + p.Handoff) * float64(time.Millisecond)),
	)
}

func readRecords(ctx context.Context, r *router) ([]record, error) {
	body, err := get(ctx, r.admin+"/debug/decisions?n=20000")
	if err != nil {
		return nil, err
	}
	var records []record
	if err := json.Unmarshal(body, &records); err != nil {
		return nil, fmt.Errorf("/debug/decisions: %w: %.200s", err, body)
	}
	return records, nil
}

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/capture"
)

// captureCommand makes a trace of the traffic of a running router, without its text.
func captureCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "capture", Short: "record the shape of a running router's traffic as a trace, without its text",
		Args: noArgs,
	}
	var o captureOptions
	fs := c.Flags()
	fs.StringVar(&o.admin, "admin", "http://127.0.0.1:9091", "`URL` of the router's admin listener")
	fs.StringVar(&o.tokenFile, "token-file", "", "`file` with the router's admin.token, if it has one")
	fs.DurationVar(&o.length, "for", 10*time.Minute,
		"length of the capture; an interrupt ends it earlier and keeps the trace so far")
	fs.StringVar(&o.out, "out", "capture.jsonl", "`file` to write; it must not exist")
	fs.StringVar(&o.note, "note", "", "`text` for the first line of the trace")
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.ErrOrStderr()) }
	return c
}

// captureOptions is what the flags of capture say.
type captureOptions struct {
	admin, tokenFile string
	length           time.Duration
	out, note        string
}

func (o *captureOptions) run(ctx context.Context, log io.Writer) error {
	if _, err := os.Stat(o.out); err == nil {
		return fmt.Errorf("--out: %s exists already; name another file", o.out)
	}
	c := capturing{log: log}
	if o.tokenFile != "" {
		text, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		c.token = strings.TrimSpace(string(text))
	}
	switch err := c.listen(ctx, o.admin, o.length); {
	case err != nil && c.header.Version == 0:
		return fmt.Errorf("--admin: %w; is this the router's admin listener (admin.listen)?", err)
	case err != nil && ctx.Err() == nil:
		return errors.Join(err, c.write(o.out, o.note)) // the earlier part is a valid trace
	}
	return c.write(o.out, o.note)
}

// capturing is the progress of a capture.
type capturing struct {
	token  string // "" shows none
	log    io.Writer
	header capture.Header
	lines  []capture.Request
	ended  bool
	lost   uint64
}

// listen reads the stream until it ends, or ctx ends.
func (c *capturing) listen(ctx context.Context, admin string, length time.Duration) error {
	at, err := url.JoinPath(admin, "debug", "capture")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"?for="+length.String(), nil)
	if err != nil {
		return err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s answers %d: %s", at, resp.StatusCode, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for told := time.Now(); lines.Scan() && !c.ended; {
		if err := c.take(lines.Bytes()); err != nil {
			return err
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(c.log, "%d requests\n", len(c.lines))
		}
	}
	if err := lines.Err(); err != nil || c.ended {
		return err
	}
	return errors.New("the router ended the capture too early; the trace so far is kept")
}

// take reads one line of the stream.
func (c *capturing) take(line []byte) error {
	if c.header.Version == 0 {
		var h capture.Header
		if err := json.Unmarshal(line, &h); err != nil || h.Version != capture.Version {
			return fmt.Errorf("the first line is not the head of a capture of version %d: %.100q",
				capture.Version, line)
		}
		c.header = h
		return nil
	}
	var end struct{ Lost *uint64 }
	if err := json.Unmarshal(line, &end); err != nil {
		return err
	}
	if end.Lost != nil {
		c.ended, c.lost = true, *end.Lost
		return nil
	}
	var one capture.Request
	err := json.Unmarshal(line, &one)
	c.lines = append(c.lines, one)
	return err
}

// write writes the trace. Requests arrive in the order of their ends, and the trace has them in the order of
// their starts.
func (c *capturing) write(name, note string) error {
	slices.SortStableFunc(c.lines, func(a, b capture.Request) int { return cmp.Compare(a.T, b.T) })
	err := writeFile(name, func(w io.Writer) error {
		out, err := capture.NewWriter(w, c.header.BlockSize, note)
		for i := 0; err == nil && i < len(c.lines); i++ {
			err = out.Write(c.lines[i])
		}
		if err != nil {
			return err
		}
		return out.Flush()
	})
	fmt.Fprintf(c.log, "%d requests in %s\n", len(c.lines), name)
	if c.lost > 0 {
		fmt.Fprintf(c.log, "%d more requests are missing: the router could not send them fast enough\n", c.lost)
	}
	return err
}

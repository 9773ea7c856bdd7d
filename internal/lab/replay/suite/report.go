package suite

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

func (l *Line) text() string {
	verdict := "holds"
	if !l.Holds {
		verdict = "MISSED"
	}
	text := fmt.Sprintf("%-52s %8.3f [%7.3f, %7.3f] %s %-6g %s",
		l.Name, l.Value, l.Low, l.High, l.Bound, l.Target, verdict)
	if l.Note != "" {
		text += "  (" + l.Note + ")"
	}
	return text
}

// Print writes the lines as a table.
func Print(w io.Writer, lines []Line) error {
	out := bufio.NewWriter(w)
	missed := 0
	for _, l := range lines {
		fmt.Fprintln(out, l.text())
		if !l.Holds {
			missed++
		}
	}
	fmt.Fprintf(out, "%d of %d hold\n", len(lines)-missed, len(lines))
	return out.Flush()
}

// Write writes the lines as JSON.
func Write(w io.Writer, lines []Line) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(lines)
}

// Validations makes lines of how far simulated engines are off from measured runs, a line for each figure:
// the relative error, which has no interval since there is one run of each.
func Validations(vs []replay.Validation) []Line {
	var lines []Line
	for _, v := range vs {
		if v.Errors == nil {
			continue
		}
		for _, f := range []struct {
			name string
			s    replay.Spread
		}{{"ttft", v.Errors.TTFT}, {"tpot", v.Errors.TPOT}, {"e2e", v.Errors.E2E}} {
			lines = append(lines, validation(v.Run, f.name+"_mean", f.s.Mean),
				validation(v.Run, f.name+"_p50", f.s.P50), validation(v.Run, f.name+"_p99", f.s.P99))
		}
	}
	return lines
}

func validation(run, figure string, miss float64) Line {
	off := max(miss, -miss)
	return Line{
		Name: "validation_error_" + figure + "/" + strings.TrimSpace(run), Value: off, Low: off, High: off,
		Target: replay.MaxError, Bound: AtMost,
		Holds: off <= replay.MaxError,
		How:   "relative error against the measured run, of requests that nothing was fitted to",
	}
}

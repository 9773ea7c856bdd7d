package claims

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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

package trace

import (
	"encoding/csv"
	"strconv"
	"strings"
	"time"
)

// azure reads Azure's LLM inference traces: times and lengths, without any block.
type azure struct {
	lines *lines
	times shifted
}

const (
	azureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens"
	azureTime   = "2006-01-02 15:04:05.9999999"
)

func (a *azure) session() (*Session, error) {
	line, err := a.lines.next()
	if err == nil && a.lines.n == 1 && strings.EqualFold(string(line), azureHeader) {
		line, err = a.lines.next()
	}
	if err != nil {
		return nil, err
	}
	fields, err := a.lines.row(line, 3)
	if err != nil {
		return nil, err
	}
	when, err := time.Parse(azureTime, strings.TrimSuffix(fields[0], "+00:00"))
	if err != nil {
		return nil, a.lines.wrong("TIMESTAMP", "%q is no time like %s", fields[0], azureTime)
	}
	at, err := a.times.since(a.lines, "TIMESTAMP", when.Sub(time.Unix(0, 0)))
	if err != nil {
		return nil, err
	}
	in, err := a.lines.count("ContextTokens", fields[1], 1)
	if err != nil {
		return nil, err
	}
	out, err := a.lines.count("GeneratedTokens", fields[2], 0)
	if err != nil {
		return nil, err
	}
	return single(at, 0, flat(in, out, nil)), nil
}

// row splits a line of a table.
func (l *lines) row(line []byte, columns int) ([]string, error) {
	r := csv.NewReader(strings.NewReader(string(line)))
	fields, err := r.Read()
	if err != nil {
		return nil, l.wrong("", "no line of a table: %v", err)
	}
	if len(fields) != columns {
		return nil, l.wrong("", "%d columns, not %d", len(fields), columns)
	}
	return fields, nil
}

func (l *lines) count(field, text string, least int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, l.wrong(field, "%q is no number", text)
	}
	return l.tokens(field, n, least)
}

func (l *lines) number(field, text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != x || x < 0 || x > 1e15 {
		return 0, l.wrong(field, "%q is no number", text)
	}
	return x, nil
}

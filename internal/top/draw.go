package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tandem-router/tandem/internal/page"
)

var (
	styleBold  = lipgloss.NewStyle().Bold(true)
	styleQuiet = lipgloss.NewStyle().Faint(true)
	styleGood  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	styleRow   = lipgloss.NewStyle().Reverse(true)
	styleBad   = [...]lipgloss.Style{
		lipgloss.NewStyle(), lipgloss.NewStyle().Foreground(lipgloss.Yellow),
		lipgloss.NewStyle().Foreground(lipgloss.Red),
	}
)

// View draws the screen.
func (m *screen) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "tandem top"
	return v
}

// lines are the lines of the screen, none wider than the screen.
func (m *screen) lines() []string {
	out := m.head()
	foot := m.foot()
	room := max(1, m.height-len(out)-1)
	var body []string
	switch {
	case m.newest.live == nil:
		body = []string{"waiting for the router at " + m.source.Base}
	case m.view == viewRequest:
		body = strings.Split(m.reading.text, "\n")[m.reading.from:]
	default:
		body = m.body(room)
	}
	for i := range room {
		line := ""
		if i < len(body) {
			line = body[i]
		}
		out = append(out, line)
	}
	out = append(out, foot)
	for i, line := range out {
		out[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(line)
	}
	return out
}

// head says how the router is and how the last minute went.
func (m *screen) head() []string {
	l := m.newest.live
	first := styleBold.Render("tandem ") + m.source.Base + "  "
	switch {
	case m.newest.err != nil:
		first += styleBad[2].Render("not connected: " + m.newest.err.Error())
	case l == nil:
		return []string{first}
	case l.Ready && len(l.Out)+len(l.Limited) > 0:
		first += styleBad[1].Render(l.Headline())
	case l.Ready:
		first += styleGood.Render("ready, " + l.Headline())
	default:
		first += styleBad[2].Render("not ready: " + strings.Join(l.Why, "; "))
	}
	if l == nil {
		return []string{first}
	}
	if m.newest.err != nil {
		first += styleQuiet.Render("; as of " + m.newest.at.Format(time.TimeOnly))
	}
	lines := []string{
		first + fmt.Sprintf("  %d in flight, %d waiting  ", l.InFlight, l.Waiting) + styleQuiet.Render(
			"config "+l.Config.Revision,
		),
	}
	lines = append(lines, recent(&l.Recent)...)
	if l.Rejected != "" {
		lines = append(lines, styleBad[2].Render("the newest configuration was rejected: "+l.Rejected))
	}
	for _, hint := range l.Hints {
		lines = append(lines, styleBad[1].Render(hint))
	}
	return append(lines, "")
}

// recent says how the last minute went, in lines of fewer than 80 columns.
func recent(r *page.Recent) []string {
	of := func(a, b int) string {
		if b <= 0 {
			return "?"
		}
		return share(float64(a) / float64(b))
	}
	errors := fmt.Sprintf("%d failed", r.Errors)
	if r.Errors > 0 {
		errors = styleBad[2].Render(errors)
	}
	return []string{
		fmt.Sprintf("%s requests/s, %s, %d tried again",
			digits(float64(r.Requests)/max(r.Seconds, 1)), errors, r.Retried),
		fmt.Sprintf("TTFT %s, p90 %s, predicted %s | ITL %s ms, p99 %s ms",
			span(r.First.P50), span(r.First.P90), span(r.Predicted.P50),
			digits(max(r.Token.P50, 0)), digits(max(r.Token.P99, 0))),
		fmt.Sprintf("prefix hits: %s of prompt tokens possible, %s of that planned, %s of that delivered",
			of(r.Available, r.Prompt), of(r.Captured, r.Available), of(r.Delivered, r.Captured)),
	}
}

// body is the table, scrolled so that the selected row is seen.
func (m *screen) body(room int) []string {
	t, rows := m.table(), m.rows()
	m.row = max(0, min(m.row, len(rows)-1))
	heads := t.heads
	if column := m.sorted[m.view]; column >= 0 {
		heads = append([]string(nil), heads...)
		heads[column] = styleBold.Underline(true).Render(heads[column]) + "▾"
	}
	widths := make([]int, len(heads))
	for i, h := range heads {
		widths[i] = lipgloss.Width(h)
		for _, r := range rows {
			widths[i] = max(widths[i], lipgloss.Width(r.cells[i]))
		}
		if i > 0 && i == t.long {
			widths[i] = min(widths[i], max(lipgloss.Width(h), m.width*2/5))
		}
	}
	out := []string{styleQuiet.Render(line(heads, widths, t.left))}
	from := max(0, min(m.row-(room-2)/2, len(rows)-(room-1)))
	for i := from; i < len(rows) && len(out) < room; i++ {
		style := styleBad[rows[i].bad]
		if i == m.row {
			style = styleRow
		}
		out = append(out, style.Render(line(rows[i].cells, widths, t.left)))
	}
	return out
}

// line puts cells under each other.
func line(cells []string, widths []int, left int) string {
	var b strings.Builder
	for i, c := range cells {
		c = ansi.Truncate(strings.ReplaceAll(c, "\n", " "), widths[i], "…")
		space := strings.Repeat(" ", max(0, widths[i]-lipgloss.Width(c)))
		switch {
		case i == len(cells)-1:
			b.WriteString(c)
		case i < left:
			b.WriteString(c + space + "  ")
		default:
			b.WriteString(space + c + "  ")
		}
	}
	return b.String()
}

// foot says which keys there are.
func (m *screen) foot() string {
	if m.filtering.typing {
		return "show only: " + m.filtering.filter + "_   (enter: keep, esc: all)"
	}
	if m.view == viewRequest {
		return styleQuiet.Render("esc back  up/down scroll  q quit")
	}
	text := "1 fleet 2 pairs 3 requests 4 keys 5 classes  enter  s sort  / filter  ? help  q"
	if m.filtering.filter != "" {
		text = "only " + m.filtering.filter + " (esc: all)  " + text
	}
	return styleQuiet.Render(text)
}

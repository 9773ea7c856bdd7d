package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/why"
)

// Run shows the router until the user leaves or ctx ends.
func Run(ctx context.Context, s Source, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := wantsTerminal(in, s); err != nil {
		return err
	}
	p := tea.NewProgram(newScreen(ctx, s), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	go s.follow(ctx, func(l *page.Live, err error) { p.Send(seen{l, err}) })
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("this needs a terminal (over ssh, -t): %w", err)
	}
	return nil
}

// wantsTerminal refuses an input that is a file and no terminal.
func wantsTerminal(in io.Reader, s Source) error {
	if f, is := in.(*os.File); is && !term.IsTerminal(f.Fd()) {
		return fmt.Errorf("standard input is not a terminal; use ssh -t, or without one: "+
			"curl %s/debug/replicas", s.Base)
	}
	return nil
}

// seen is a snapshot, or why there is none.
type seen struct {
	live *page.Live
	err  error
}

// found is the page of one request, or why there is none.
type found struct {
	text string
	err  error
}

// view is what the lower part of the screen shows.
type view int

const (
	viewFleet view = iota
	viewPairs
	viewRequests
	viewKeys
	viewClasses
	viewRequest // one request, or another text
)

// screen is the state of the program; tea owns it.
type screen struct {
	ctx    context.Context //nolint:containedctx // of the program, for what it asks the router
	source Source

	newest newest

	width, height int
	view          view
	row           int              // selected
	sorted        [viewRequest]int // column by view, -1 for the order of the router
	filtering     filtering
	reading       reading
}

// newest is what the router said last.
type newest struct {
	live *page.Live // newest, nil before the first
	err  error      // of the newest try
	at   time.Time  // when it came
}

// filtering says which rows are left out.
type filtering struct {
	filter string
	typing bool // the keys go into the filter
}

// reading is a page of text.
type reading struct {
	text string
	from int  // its first line on the screen
	back view // where it was opened
}

func newScreen(ctx context.Context, s Source) *screen {
	return &screen{ctx: ctx, source: s, sorted: [...]int{-1, -1, -1, -1, -1}, width: 100, height: 30}
}

// Init starts nothing: snapshots come by themselves.
func (m *screen) Init() tea.Cmd { return nil }

// Update handles one message.
func (m *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case seen:
		m.newest.err = msg.err
		if msg.live != nil {
			m.newest.live, m.newest.at = msg.live, time.Now()
		}
	case found:
		m.read(msg.text)
		if msg.err != nil {
			m.reading.text = msg.err.Error()
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// key does what a key is for.
func (m *screen) key(k tea.KeyPressMsg) tea.Cmd {
	if m.filtering.typing {
		m.typed(k)
		return nil
	}
	switch k.String() {
	case "q", "ctrl+c":
		return tea.Quit
	case "esc":
		if m.view == viewRequest {
			m.view = m.reading.back
		} else {
			m.filtering.filter = ""
		}
	case "1", "2", "3", "4", "5":
		m.show(view(k.String()[0] - '1'))
	case "tab":
		m.show((m.view + 1) % viewRequest)
	case "/":
		m.filtering.typing, m.view = true, min(m.view, viewClasses)
	case "s":
		m.sort()
	case "up", "k", "down", "j", "pgup", "pgdown", "home", "end":
		m.move(k.String())
	case "?":
		m.read(help)
	case "enter":
		return m.open()
	}
	return nil
}

// typed puts a key into the filter.
func (m *screen) typed(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.filtering.typing = false
	case "esc", "ctrl+c":
		m.filtering.typing, m.filtering.filter = false, ""
	case "backspace":
		if r := []rune(m.filtering.filter); len(r) > 0 {
			m.filtering.filter = string(r[:len(r)-1])
		}
	default:
		m.filtering.filter += k.Text
	}
	m.row = 0
}

func (m *screen) show(v view) {
	m.view = v
	m.row = 0
	m.reading.from = 0
}

// sort changes to the next column, and after the last column to the order of the router.
func (m *screen) sort() {
	if m.view == viewRequest || m.newest.live == nil {
		return
	}
	if m.sorted[m.view]++; m.sorted[m.view] >= len(m.table().heads) {
		m.sorted[m.view] = -1
	}
}

// move changes the selected row, or scrolls the record of a request.
func (m *screen) move(key string) {
	at, last := &m.row, len(m.rows())-1
	if m.view == viewRequest {
		at, last = &m.reading.from, strings.Count(m.reading.text, "\n")
	}
	step := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -m.height / 2, "pgdown": m.height / 2, "home": -last,
		"end": last,
	}[key]
	*at = max(0, min(*at+step, last))
}

// read shows a text until esc is pressed.
func (m *screen) read(text string) {
	if m.view != viewRequest {
		m.reading.back = m.view
	}
	m.reading.text, m.reading.from = text, 0
	m.view = viewRequest
}

// open shows the selected replica, or asks for the record of the selected request.
func (m *screen) open() tea.Cmd {
	rows := m.rows()
	if m.row >= len(rows) || m.view == viewPairs || m.view >= viewKeys {
		return nil
	}
	id := rows[m.row].id
	if m.view == viewFleet {
		for i := range m.newest.live.Replicas {
			if r := &m.newest.live.Replicas[i]; r.Name == id {
				m.read(detail(m.newest.live, r))
			}
		}
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, 10*time.Second)
		defer cancel()
		r, err := why.At(ctx, m.source.Base, m.source.Token, id)
		if err != nil {
			return found{err: err}
		}
		var text strings.Builder
		err = r.Page(&text, why.Weights{})
		return found{text.String(), err}
	}
}

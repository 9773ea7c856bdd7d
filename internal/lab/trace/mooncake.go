package trace

import (
	"math/rand/v2"
	"slices"
	"time"
)

// mooncake reads kvcache-ai/Mooncake's FAST25 traces. Timestamps are ticks of 3 s; a block has 512 tokens.
type mooncake struct {
	lines *lines
	raw   bool
	rnd   *rand.Rand

	tick  []*Session // of one time, read and not given out
	ahead *Session   // first of the next tick
	times shifted
	end   error
}

const (
	mooncakeTick  = 3 * time.Second
	mooncakeBlock = 512
	maxTick       = 1 << 20 // requests at one time
)

type mooncakeLine struct {
	Timestamp *float64 `json:"timestamp"` // ms
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	IDs       []uint64 `json:"hash_ids"`
}

func (m *mooncake) session() (*Session, error) {
	if m.raw {
		return m.read()
	}
	if len(m.tick) == 0 {
		if err := m.fill(); err != nil {
			return nil, err
		}
	}
	s := m.tick[0]
	m.tick = m.tick[1:]
	return s, nil
}

// fill reads the requests of one tick and spreads them evenly over the time until the next tick. Each request
// gets an equal share of the time and a random place in its share.
func (m *mooncake) fill() error {
	m.tick = m.tick[:0]
	if m.ahead != nil {
		m.tick, m.ahead = append(m.tick, m.ahead), nil
	}
	for m.end == nil && len(m.tick) < maxTick {
		s, err := m.read()
		if err != nil {
			m.end = err
			break
		}
		if len(m.tick) > 0 && s.At != m.tick[0].At {
			m.ahead = s
			break
		}
		m.tick = append(m.tick, s)
	}
	if len(m.tick) == 0 {
		return m.end
	}
	share := float64(mooncakeTick) / float64(len(m.tick))
	for i, s := range m.tick {
		s.At += time.Duration(share * (float64(i) + m.rnd.Float64()))
	}
	m.tick = slices.Clip(m.tick)
	return nil
}

func (m *mooncake) read() (*Session, error) {
	var line mooncakeLine
	if err := m.lines.decode(&line); err != nil {
		return nil, err
	}
	if line.Timestamp == nil {
		return nil, m.lines.wrong("timestamp", "is missing")
	}
	at, err := m.lines.seconds("timestamp", *line.Timestamp/1e3)
	if err != nil {
		return nil, err
	}
	if at, err = m.times.since(m.lines, "timestamp", at); err != nil {
		return nil, err
	}
	c, err := m.lines.flatCall(line.Input, line.Output, line.IDs, mooncakeBlock,
		[3]string{"input_length", "output_length", "hash_ids"})
	if err != nil {
		return nil, err
	}
	return single(at, mooncakeBlock, c), nil
}

// flatCall checks a call with a list of identities. names are the names of its fields.
func (l *lines) flatCall(input, output int, ids []uint64, size int, names [3]string) (Call, error) {
	in, err := l.tokens(names[0], input, 1)
	if err != nil {
		return Call{}, err
	}
	out, err := l.tokens(names[1], output, 0)
	if err != nil {
		return Call{}, err
	}
	if err := l.fits(names[2], in, len(ids), size); err != nil {
		return Call{}, err
	}
	return flat(in, out, ids), nil
}

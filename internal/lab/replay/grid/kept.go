package grid

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// Plays are finished plays, by their input. Plays of rivals may be saved, because changes of Tandem's
// decision do not change them, and they are nine of ten plays. Safe for concurrent use.
type Plays struct {
	mu   sync.Mutex // guards the following
	made map[playKey]*Played
	out  io.Writer // nil: plays are not saved
}

// playKey is the complete input of a play.
type playKey struct {
	Kind    string        `json:"kind"`
	Cluster string        `json:"cluster"`
	Form    string        `json:"form"`
	Cache   float64       `json:"cache"`
	Step    int           `json:"step"`
	Load    float64       `json:"load"`
	Seed    uint64        `json:"seed"`
	For     time.Duration `json:"for"`
	Skip    time.Duration `json:"skip,omitzero"`
	Model   string        `json:"model,omitzero"` // see [Options.Model]
}

func keyOf(p *replay.Play, form, model string) playKey {
	return playKey{p.Kind, p.Cluster, form, p.Cache, p.Step, p.Scale, p.Seed, p.For, p.Skip, model}
}

// NewPlays makes an empty set that is not saved.
func NewPlays() *Plays { return &Plays{made: map[playKey]*Played{}} }

// keptPlay is a line of the file.
type keptPlay struct {
	playKey
	Played *Played `json:"played"`
}

// header is the first line of the file.
type header struct {
	Engines string `json:"engines"` // results of two small plays, see [fingerprint]
}

// ReadPlays loads saved plays. If the simulated engines or their surroundings have changed since, it reports
// that and loads nothing. An incomplete line ends the reading.
func (p *Plays) ReadPlays(ctx context.Context, r io.Reader) (same bool, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	if !in.Scan() {
		return false, in.Err()
	}
	var h header
	now, err := fingerprint(ctx)
	if err != nil {
		return false, err
	}
	if json.Unmarshal(in.Bytes(), &h) != nil || h.Engines != now {
		return false, nil
	}
	for in.Scan() {
		var x keptPlay
		if err := json.Unmarshal(in.Bytes(), &x); err != nil {
			break
		}
		p.made[x.playKey] = x.Played
	}
	return true, in.Err()
}

// Keep writes all plays of rivals.
func (p *Plays) Keep(ctx context.Context, w io.Writer) error {
	now, err := fingerprint(ctx)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(header{now}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, x := range p.made {
		if err := write(w, key, x); err != nil {
			return err
		}
	}
	return nil
}

// Append makes x write every coming play of a rival.
func (p *Plays) Append(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = w
}

func (p *Plays) find(key playKey) *Played {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made[key]
}

func (p *Plays) keep(key playKey, x *Played) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[key] = x
	if p.out == nil {
		return nil
	}
	return write(p.out, key, x)
}

func write(w io.Writer, key playKey, x *Played) error {
	if key.Form == ours || slices.Contains(Oracles, key.Form) { // both use Tandem's costs
		return nil
	}
	return json.NewEncoder(w).Encode(keptPlay{key, x})
}

// fingerprint identifies the simulated fleet: the figures of two small plays of rivals, to the last digit.
func fingerprint(ctx context.Context) (string, error) {
	var text strings.Builder
	for _, at := range [][2]string{{"2P1D", "dynamo:credit=1.5+local:k=2"}, {"3D", "lmetric"}} {
		play, err := replay.Play{
			Cluster: at[0], Scale: 2, For: 40 * time.Second, EventLag: 100 * time.Millisecond, Poll: time.Second,
		}.OfKind("answers300-long-some-bursts")
		if err != nil {
			return "", err
		}
		o, _, err := play.Once(ctx, at[1])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "%s %d requests %d steps %v s %v s %v s;",
			at[0], o.Requests, o.Steps, o.End, o.TTFT.Mean, o.Gap.P99)
	}
	return text.String(), nil
}

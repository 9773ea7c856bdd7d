package replay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-router/tandem/internal/lab/trace"
)

// drawStarts draws when sessions start. The rates come from the clients in a file that p names, p.Rate a
// second on average, and p.Scale times as dense. Clients keep their shares of the rate, and each client stays
// as uneven as it is.
func (p *Play) drawStarts() (starts []trace.Arrival, err error) {
	f, err := os.Open(p.Arrivals)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	span := p.For
	if span == 0 {
		span = time.Hour
	}
	span = (span + trace.WindowLength - 1).Truncate(trace.WindowLength)
	windows, err := trace.Arrivals(f, filepath.Base(p.Arrivals), 0, span)
	if err != nil {
		return nil, err
	}
	rate := 0.0 // of all windows of all clients, each ten minutes long
	for i := range windows {
		rate += windows[i].Rate * trace.WindowLength.Seconds() / span.Seconds()
	}
	if rate <= 0 {
		return nil, fmt.Errorf("%s: nobody asks for anything in the first %v", p.Arrivals, span)
	}
	return trace.Draw(windows, p.Scale*p.Rate/rate, rand.New(rand.NewPCG(p.Seed, 0x6172726976))), nil
}

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
)

const (
	longTokens = 4096 // the longer prompt, at most; the shorter one is a quarter as long
	leastLong  = 512  // below this the two lengths are too alike to tell anything
	rounds     = 2    // of both lengths: the faster one of each counts, since others use the engines too
	// For the timing of all pairs; those whose turn does not come are not timed.
	speedTime = 20 * time.Second
	// Between the two lengths: a difference below it can be of other requests' making, and makes no pair slow.
	noise     = 100 * time.Millisecond
	leastDiff = time.Millisecond // between the two lengths; a smaller difference is no measurement
)

// speed is the bandwidth of a pair: the additional tokens of the longer prompt over the additional time. So
// the fixed cost of a handoff cancels out.
type speed struct {
	tokens  float64 // a second
	bytes   float64 // of KV a token, by the decode engine's NIXL counters; 0 unknown
	atLeast bool    // the two lengths took the same time, or nearly
	diff    time.Duration
}

// String is in GB/s where it is known how large a token is.
func (s *speed) String() string {
	text := fmt.Sprintf("%.0f tokens/s", s.tokens)
	if s.bytes > 0 {
		text = gigabytes(s.perSecond()) + "/s"
	}
	if s.atLeast {
		return "at least " + text
	}
	return text
}

// gigabytes writes a size as the configuration does, with two decimals where it is small.
func gigabytes(bytes float64) string {
	if bytes < 10e9 {
		return fmt.Sprintf("%.2fGB", bytes/1e9)
	}
	return fmt.Sprintf("%.0fGB", bytes/1e9)
}

// perSecond is in bytes, 0 where a token's are not known.
func (s *speed) perSecond() float64 { return s.tokens * s.bytes }

// time measures the pairs over which blocks have moved, one after the other, so that they do not share the
// way.
func (hs handoffs) time(ctx context.Context, f *fleet) {
	ctx, cancel := context.WithTimeout(ctx, speedTime)
	defer cancel()
	asked := map[*rank][]*canary.Question{}
	for _, h := range hs.ofKind(canary.Moved) {
		if ctx.Err() != nil {
			return
		}
		f.say(h.to.name(), "timing the way from %s", h.from.name())
		if asked[h.from] == nil { // its prefixes are cached for the next pair: a prompt is computed once
			asked[h.from] = h.questions()
		}
		h.speed = h.measure(ctx, f, asked[h.from])
	}
}

// questions alternate between both lengths, none where the engines have no room for a prompt that is long
// enough.
func (h *handoff) questions() (all []*canary.Question) {
	long := longTokens
	for _, r := range []*rank{h.from, h.to} {
		if n := r.s.seen.model.MaxModelLen; n > 0 {
			long = min(long, n-2*canary.AnswerTokens)
		}
		if n := r.s.seen.series.scrape.Ranks[r.n].Cache.Blocks * r.blockSize(); n > 0 {
			long = min(long, n/4)
		}
	}
	if long < leastLong {
		return nil
	}
	e := canary.Between(h.from.engine(), h.to.engine())
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for range rounds {
		all = append(all, canary.NewOf(e, long/4, rnd), canary.NewOf(e, long, rnd))
	}
	return all
}

// measure hands the questions over; nil where a handoff failed.
func (h *handoff) measure(ctx context.Context, f *fleet, questions []*canary.Question) *speed {
	if len(questions) == 0 {
		return nil
	}
	best := map[int]time.Duration{} // by length
	bytes := math.Inf(1)
	for _, q := range questions {
		got := h.hand(ctx, f, q)
		if got.failed != nil || got.split.Err != nil || got.split.Status != 200 {
			return nil
		}
		n := len(q.IDs)
		if old, known := best[n]; !known || got.took < old {
			best[n] = got.took
		}
		if grown := got.after.Bytes - got.before.Bytes; grown > 0 {
			bytes = min(bytes, grown/float64(n))
		}
	}
	short, long := len(questions[0].IDs), len(questions[1].IDs)
	diff := best[long] - best[short]
	s := &speed{
		diff: diff, atLeast: diff < leastDiff,
		tokens: float64(long-short) / max(diff, leastDiff).Seconds(),
	}
	if !math.IsInf(bytes, 1) {
		s.bytes = bytes
	}
	return s
}

// link is the class of the path, with its name in scoring.links and the configured bytes a second.
func (h *handoff) link() (class replica.Link, configured config.Bytes) {
	class = h.from.place().LinkTo(h.to.place())
	l := h.to.s.fleet.cfg.Scoring.Links
	return class, [...]config.Bytes{l.Host, l.Rack, l.Zone, l.Other}[class]
}

// A path is slow if it is so many times slower than its configured bandwidth, or than the median path of its
// kind. 100 GB/s, the default within a host, are NVLink's; PCIe's 20 are no trouble.
const (
	slowConfigured = 8
	slowNeighbours = 3
)

// slow reports whether the pair is several times slower than it should be.
func (h *handoff) slow(all []*handoff) bool {
	if h.speed.diff < noise {
		return false
	}
	class, configured := h.link()
	if rate := h.speed.perSecond(); rate > 0 && rate*slowConfigured < float64(configured) {
		return true
	}
	var others []float64
	for _, o := range all {
		if c, _ := o.link(); c == class && o != h {
			others = append(others, o.speed.tokens)
		}
	}
	if len(others) == 0 {
		return false
	}
	slices.Sort(others)
	return h.speed.tokens*slowNeighbours < others[len(others)/2]
}

func (h *handoff) timed() string {
	class, configured := h.link()
	return fmt.Sprintf("%v %v (scoring.links.%v: %v/s)", h, h.speed, class, configured)
}

func waysFast(f *fleet) verdict {
	timed := slices.DeleteFunc(slices.Clone(f.handoffs), func(h *handoff) bool { return h.speed == nil })
	if len(timed) == 0 {
		return skip("no pair could be timed: it takes prompts of %d tokens that are handed over", leastLong)
	}
	slices.SortStableFunc(timed, func(a, b *handoff) int { return cmp.Compare(a.speed.tokens, b.speed.tokens) })
	var slow, lines []string
	do := ""
	for i, h := range timed {
		if h.slow(timed) {
			slow = append(slow, h.String())
			do = cmp.Or(do, h.quicker())
		}
		if i < mostLines {
			lines = append(lines, h.timed())
		}
	}
	if more := len(timed) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d faster ones", more))
	}
	text := strings.Join(lines, ", ")
	if len(slow) == 0 {
		return fine("%s", text)
	}
	return warn(do, "%d of %s several times slower than configured or than the others; slowest first: %s",
		len(slow), plural(len(timed), "pair"), text)
}

const mostLines = 8

// quicker is what to do about a slow way.
func (h *handoff) quicker() string {
	class, _ := h.link()
	instead := ""
	if rate := h.speed.perSecond(); rate > 0 {
		instead = fmt.Sprintf("; if the way is no faster, write scoring.links.%v: %s", class, gigabytes(rate))
	}
	if class == replica.SameHost {
		return "start both engines with UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on: where UCX sees no NVLink (PCIe cards, " +
			"virtual machines) it moves KV within a host over TCP otherwise, and logs nothing " +
			"(UCX_PROTO_INFO=y says " +
			"which way it goes)" + instead
	}
	return "look whether UCX has fallen back to TCP (UCX_PROTO_INFO=y in the engines' environment says so): " +
		"UCX_TLS must allow the network's transport (rc for InfiniBand and RoCE) and UCX_NET_DEVICES its device" +
		instead
}

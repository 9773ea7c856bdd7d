package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
)

// Description is a fleet as users write it: in short ("8P8D", see [Shape]) or as YAML ([ReadDescription]).
type Description struct {
	Routers int        `yaml:"routers"` // each with its own share of the requests; 1
	Links   Bandwidths `yaml:"links"`
	Prefill []Group    `yaml:"prefill"`
	Decode  []Group    `yaml:"decode"`
}

// Bandwidths are the bandwidths of paths between two engines, in GB/s, by distance. A missing one equals the
// next nearer one, and the nearest equals the fleet's default.
type Bandwidths struct {
	Host  float64 `yaml:"host"`
	Rack  float64 `yaml:"rack"`
	Zone  float64 `yaml:"zone"`
	Other float64 `yaml:"other"`
}

// Group is a set of equal engines in the same place.
type Group struct {
	Replicas int     `yaml:"replicas"` // 1
	Profile  string  `yaml:"profile"`  // GPU and model; the fleet's default
	Speed    float64 `yaml:"speed"`    // with 0.6 everything takes 1/0.6 of the profile's time; 1
	Cache    float64 `yaml:"cache"`    // KV capacity as a multiple of the GPUs' own; the fleet's default
	Step     int     `yaml:"step"`     // tokens of a step; the fleet's default for decode, vLLM's for prefill
	Host     string  `yaml:"host"`
	Rack     string  `yaml:"rack"`
	Zone     string  `yaml:"zone"`
}

// Base holds the defaults of engines and links.
type Base struct {
	Profile   string
	Cache     float64 // multiple of the GPUs' own
	Link      float64 // GB/s
	Step      int     // tokens of a decode replica's step, 0: vLLM's default
	MaxLen    int     // tokens of a prompt and its answer
	Sequences int     // maximum that an engine runs at a time, 0: vLLM's default
}

// ReadDescription reads YAML. Errors begin with name.
func ReadDescription(r io.Reader, name string) (Description, error) {
	var d Description
	if err := yaml.NewDecoder(r, yaml.Strict()).Decode(&d); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return d, fmt.Errorf("cluster %s: %w", name, err)
	}
	return d, nil
}

var (
	shape  = regexp.MustCompile(`^((?:\+?(?:\d+(?:~[\d.]+)?[PD])+)+)(?:@([\d.]+))?(?:x(\d+))?$`)
	member = regexp.MustCompile(`(\d+)(?:~([\d.]+))?([PD])`)
)

// ShapeOf is the short form of a number of replicas, some of which prefill: "8D" if none does.
func ShapeOf(prefill, replicas int) string {
	if prefill == 0 {
		return fmt.Sprintf("%dD", replicas)
	}
	return fmt.Sprintf("%dP%dD", prefill, replicas-prefill)
}

// Shape reads the short form: the replicas of each kind, with + between racks. The bandwidth between racks in
// GB/s and the number of routers may follow.
//
//	8P8D               eight of each
//	4P4~0.6P8D         half of the prefill replicas at 0.6 of the speed
//	6P2D+2P6D@4        two racks with 4 GB/s between them
//	8P8Dx4             four routers
func Shape(text string) (Description, error) {
	m := shape.FindStringSubmatch(text)
	if m == nil || strings.HasPrefix(text, "+") {
		return Description{}, fmt.Errorf(
			"cluster %q: want a .yaml file, or a form like 8P8D, 4P4~0.6P8D, 6P2D+2P6D@4 or 8P8Dx4", text,
		)
	}
	var d Description
	racks := strings.Split(m[1], "+")
	for i, rack := range racks {
		for _, x := range member.FindAllStringSubmatch(rack, -1) {
			n, err := strconv.Atoi(x[1])
			speed, bad := number(x[2])
			if err = errors.Join(err, bad); err != nil {
				return d, fmt.Errorf("cluster %q: %w", text, err)
			}
			g := Group{Replicas: n, Speed: speed}
			if len(racks) > 1 {
				g.Rack = "rack" + strconv.Itoa(i+1)
			}
			d.add(x[3], g)
		}
	}
	between, err := number(m[2])
	d.Links.Zone = between
	if m[3] != "" {
		d.Routers, _ = strconv.Atoi(m[3])
	}
	if err == nil && between > 0 && len(racks) == 1 {
		err = errors.New("@ is the speed between racks, but there is only one rack")
	}
	if err != nil {
		err = fmt.Errorf("cluster %q: %w", text, err)
	}
	return d, err
}

func number(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseFloat(text, 64)
}

// add appends a group; its number of replicas is required.
func (d *Description) add(kind string, g Group) {
	if g.Replicas == 0 {
		return
	}
	if kind == "P" {
		d.Prefill = append(d.Prefill, g)
		return
	}
	d.Decode = append(d.Decode, g)
}

// Maximum numbers of replicas of a kind, and of routers.
const maxReplicas, maxRouters = 1024, 64

// Config makes the fleet.
func (d Description) Config(b Base) (Config, error) {
	var c Config
	if err := d.check(); err != nil {
		return c, err
	}
	c.Routers = max(1, d.Routers)
	host := cmp.Or(d.Links.Host, b.Link)
	rack := cmp.Or(d.Links.Rack, host)
	zone := cmp.Or(d.Links.Zone, rack)
	for class, gb := range [replica.Links]float64{host, rack, zone, cmp.Or(d.Links.Other, zone)} {
		c.Links[class] = gb * 1e9
	}
	for side, groups := range [][]Group{d.Prefill, d.Decode} {
		for i := range groups {
			if err := c.add(Side(side), &groups[i], b); err != nil {
				return c, fmt.Errorf("%s group %d: %w", [...]string{"prefill", "decode"}[side], i+1, err)
			}
		}
		if len(c.Nodes[side]) > maxReplicas {
			return c, fmt.Errorf("%d replicas: 1 to %d of each kind", len(c.Nodes[side]), maxReplicas)
		}
	}
	return c, nil
}

func (d *Description) check() error {
	l := d.Links
	for _, gb := range []float64{l.Host, l.Rack, l.Zone, l.Other} {
		if !(gb >= 0) || gb > 1e6 {
			return fmt.Errorf("a link of %g GB/s: more than 0", gb)
		}
	}
	switch {
	case d.Routers < 0 || d.Routers > maxRouters:
		return fmt.Errorf("%d routers: 1 to %d", d.Routers, maxRouters)
	case len(d.Decode) == 0:
		return fmt.Errorf("no decode replicas: 1 to %d", maxReplicas)
	}
	return nil
}

// add puts the engines of a group into the fleet.
func (c *Config) add(side Side, g *Group, b Base) error {
	name := cmp.Or(g.Profile, b.Profile)
	preset, ok := core.FindPreset(name)
	switch {
	case !ok:
		return fmt.Errorf("no profile %q", name)
	case c.TokenBytes != 0 && c.TokenBytes != preset.TokenBytes:
		return fmt.Errorf("profile %s has %d bytes of KV per token, others have %d: they cannot read each other's",
			name, preset.TokenBytes, c.TokenBytes)
	case g.Replicas < 0 || g.Replicas > maxReplicas:
		return fmt.Errorf("%d replicas: 1 to %d of each kind", g.Replicas, maxReplicas)
	case !(g.Speed >= 0) || g.Speed > 100:
		return fmt.Errorf("speed %g: more than 0, at most 100", g.Speed)
	case !(g.Cache >= 0) || g.Cache > 1000:
		return fmt.Errorf("cache %g: more than 0, at most 1000", g.Cache)
	case g.Step < 0 || g.Step > 1<<20:
		return fmt.Errorf("a step of %d tokens: more than 0, at most %d", g.Step, 1<<20)
	}
	c.TokenBytes = preset.TokenBytes
	n := Node{Place: replica.Place{Host: g.Host, Rack: g.Rack, Zone: g.Zone}}
	n.Engine = core.Config{
		Blocks: int(cmp.Or(g.Cache, b.Cache)*float64(preset.KVTokens))/16 + 1, Cost: preset.Cost, Vocab: 1 << 17,
		BlockSize: 16, MaxBatchedTokens: g.Step, MaxSeqs: b.Sequences,
	}
	if side == Decode {
		n.Engine.MaxBatchedTokens = cmp.Or(g.Step, b.Step)
	}
	n.Engine.MaxModelLen = min(b.MaxLen+16, (n.Engine.Blocks-1)*16)
	n.Engine.Cost.Speed = g.Speed
	for range max(1, g.Replicas) {
		c.Nodes[side] = append(c.Nodes[side], n)
	}
	return nil
}

// MaxModelLen is the number of tokens of a prompt and its answer that every engine accepts.
func (c *Config) MaxModelLen() int {
	limit := 0
	for _, side := range c.Nodes {
		for i := range side {
			if n := side[i].Engine.MaxModelLen; limit == 0 || n < limit {
				limit = n
			}
		}
	}
	return limit
}

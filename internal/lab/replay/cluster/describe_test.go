package cluster

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
)

// base has engines for a model of eight billion parameters, and links of 40 GB/s.
var base = Base{Profile: "8b", Cache: 1, Link: 40, MaxLen: 32_000}

func TestShapes(t *testing.T) {
	group := func(n int, speed float64, rack string) Group {
		return Group{Replicas: n, Speed: speed, Rack: rack}
	}
	for _, tt := range []struct {
		text string
		want Description
	}{
		{"8P3D", Description{Prefill: []Group{group(8, 0, "")}, Decode: []Group{group(3, 0, "")}}},
		{"8D", Description{Decode: []Group{group(8, 0, "")}}},
		{
			"4P4~0.6P8D",
			Description{Prefill: []Group{group(4, 0, ""), group(4, 0.6, "")}, Decode: []Group{group(8, 0, "")}},
		},
		{"6P2D+2P6D@4", Description{
			Links: Bandwidths{Zone: 4}, Prefill: []Group{group(6, 0, "rack1"), group(2, 0, "rack2")},
			Decode: []Group{group(2, 0, "rack1"), group(6, 0, "rack2")},
		}},
		{"4P2D+4P1D@0.5x4", Description{
			Routers: 4, Links: Bandwidths{Zone: 0.5}, Prefill: []Group{group(4, 0, "rack1"), group(4, 0, "rack2")},
			Decode: []Group{group(2, 0, "rack1"), group(1, 0, "rack2")},
		}},
	} {
		got, err := Shape(tt.text)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, %+v\nwant %+v", tt.text, err, got, tt.want)
		}
		if _, err := got.Config(base); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
	}
}

func TestDescriptionByHand(t *testing.T) {
	text := `
routers: 2
links: {rack: 20, zone: 4}
prefill:
  - {replicas: 2, rack: a, zone: north}
  - {speed: 0.6, cache: 2, rack: b, zone: north}
decode:
  - {replicas: 1, rack: b, zone: south}
`
	d, err := ReadDescription(strings.NewReader(text), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Config(base)
	if err != nil {
		t.Fatal(err)
	}
	preset, _ := core.FindPreset("8b")
	if len(c.Nodes[Prefill]) != 3 || len(c.Nodes[Decode]) != 1 || c.Routers != 2 ||
		c.TokenBytes != preset.TokenBytes {
		t.Fatalf("%+v", c)
	}
	if c.Links != [replica.Links]float64{40e9, 20e9, 4e9, 4e9} {
		t.Errorf("links %v: want a missing speed to equal the speed of the next nearer link", c.Links)
	}
	first, last := c.Nodes[Prefill][0], c.Nodes[Prefill][2]
	if last.Engine.Cost.Speed != 0.6 || first.Engine.Cost.Speed != 0 || last.Engine.Cost.A != preset.Cost.A {
		t.Errorf("speeds %v and %v", first.Engine.Cost.Speed, last.Engine.Cost.Speed)
	}
	if first.Engine.Blocks != 408_000/16+1 || last.Engine.Blocks != 816_000/16+1 ||
		first.Place != (replica.Place{Rack: "a", Zone: "north"}) {
		t.Errorf("%d and %d blocks, place %+v", first.Engine.Blocks, last.Engine.Blocks, first.Place)
	}
	if c.MaxModelLen() != 32_016 {
		t.Errorf("takes %d tokens", c.MaxModelLen())
	}
	if c.Nodes[Decode][0].Engine.MaxModelLen = 100; c.MaxModelLen() != 100 {
		t.Error("the smallest engine does not limit the others")
	}
}

func TestDescriptionMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "it is empty",
		"routers: 2\nprefil: []\n":                `unknown field "prefil"`,
		"prefill: [{replicas: 1}]\n":              "no decode replicas",
		"decode: [{replicas: 2000}]":              "1 to 1024",
		"decode: [{profile: tpu}]":                `decode group 1: no profile "tpu"`,
		"decode: [{speed: -1}]":                   "speed -1",
		"decode: [{cache: -1}]":                   "cache -1",
		"decode: [{}]\nrouters: 99":               "99 routers",
		"decode: [{}]\nlinks: {zone: -4}":         "a link of -4 GB/s",
		"prefill: [{profile: 70b}]\ndecode: [{}]": "cannot read each other's",
	} {
		d, err := ReadDescription(strings.NewReader(text), "x.yaml")
		if err == nil {
			_, err = d.Config(base)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{
		"", "8", "P8D", "8P8Dx", "8p8d", "+1P1D", "1P1D@4", "1~P1D", "1P1D+1P1D@1.2.3",
	} {
		if d, err := Shape(text); err == nil {
			t.Errorf("%q is %+v", text, d)
		}
	}
}

// Each router sees only its own requests, but all events and reports. A request waits at the router that
// received it.
func TestSeveralRouters(t *testing.T) {
	c := config(2, 2)
	routers := []*script{{wants: [2]bool{true, true}}, {wants: [2]bool{true, true}}}
	var text strings.Builder
	text.WriteString(header)
	for range 40 {
		text.WriteString(`{"t":0.1,"in":64,"out":3}` + "\n")
	}
	res, err := playSeveral(t, c, []Router{routers[0], routers[1]}, text.String(), 1)
	r := must(t, res, err)
	places := func(s *script) (n int) {
		for _, m := range s.marks {
			if strings.HasPrefix(m, "place") {
				n++
			}
		}
		return n
	}
	a, b := places(routers[0]), places(routers[1])
	if len(r.Records) != 40 || a+b != 40 || a < 10 || b < 10 {
		t.Errorf("%d requests: %d and %d", len(r.Records), a, b)
	}
	for _, s := range routers {
		if len(s.marks) != 5*places(s) {
			t.Errorf("%d marks of %d requests: want place, answered, bind, first and done at one router",
				len(s.marks), places(s))
		}
	}
	if len(routers[0].heard) == 0 || !reflect.DeepEqual(routers[0].heard, routers[1].heard) {
		t.Errorf("the routers received %d and %d batches", len(routers[0].heard), len(routers[1].heard))
	}
	polls := func(s *script) (n int) {
		for _, l := range s.loads {
			if strings.Contains(l, " 2 at ") { // replica.Metrics
				n++
			}
		}
		return n
	}
	if polls(routers[0]) < 4 || polls(routers[1]) < 4 {
		t.Errorf("%d and %d polls of four engines", polls(routers[0]), polls(routers[1]))
	}
}

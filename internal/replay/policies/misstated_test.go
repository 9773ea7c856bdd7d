package policies

import (
	"testing"
)

// Routers that ask for the speed of links are told the wrong one, while blocks move at the right one.
func TestRoutersAreToldWrongLinks(t *testing.T) {
	c := fleet()
	class := c.Nodes[0][0].Place.LinkTo(c.Nodes[1][0].Place)
	real := c.Links[class]
	c.Misstated.Links = 10
	if got := policyOf(&c, &Options{}).Links[class]; got != 10*real {
		t.Errorf("Tandem is told %g bytes a second, want ten times the real %g", got, real)
	}
	f := newField(entry{}, greedy{}, c, 1)
	if got, want := f.perToken(0, 0), float64(c.TokenBytes)/(10*real); got != want {
		t.Errorf("a rival is told %g s a token, want %g", got, want)
	}
	if c.Links[class] != real {
		t.Errorf("blocks move at %g bytes a second, want %g", c.Links[class], real)
	}
	c.Misstated.Links = 0
	if told := c.ToldLinks(); told != c.Links {
		t.Errorf("nothing is misstated, and routers are told %v for %v", told, c.Links)
	}
}

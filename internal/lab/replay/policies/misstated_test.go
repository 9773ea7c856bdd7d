package policies

import (
	"testing"
)

// Routers that use the speed of links get the wrong speed, while blocks move at the real speed.
func TestRoutersAreToldWrongLinks(t *testing.T) {
	c := fleet()
	class := c.Nodes[0][0].Place.LinkTo(c.Nodes[1][0].Place)
	usual := c.Links[class]
	c.Misstated.Links = 10
	if got := policyOf(&c, &Options{}).Links[class]; got != 10*usual {
		t.Errorf("Tandem is given %g bytes a second, want ten times the real %g", got, usual)
	}
	f := newField(entry{}, leastTokens{}, c, 1)
	if got, want := f.perToken(0, 0), float64(c.TokenBytes)/(10*usual); got != want {
		t.Errorf("a rival is given %g s a token, want %g", got, want)
	}
	if c.Links[class] != usual {
		t.Errorf("blocks move at %g bytes a second, want %g", c.Links[class], usual)
	}
	c.Misstated.Links = 0
	if told := c.ToldLinks(); told != c.Links {
		t.Errorf("nothing is misstated, but routers are given %v instead of %v", told, c.Links)
	}
}

package rooms_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var goFile = regexp.MustCompile("`((?:[a-z]+/)+[a-z_]+\\.go)`")

// Every file that the tour passes is there.
func TestTheTourNamesFilesThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	names := goFile.FindAllStringSubmatch(string(text), -1)
	if len(names) < 20 {
		t.Fatalf("docs/tour.md names %d files", len(names))
	}
	for _, m := range names {
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("docs/tour.md: %v", err)
		}
	}
}

// The picture has every room of the table.
func TestThePictureHasEveryRoom(t *testing.T) {
	picture, err := os.ReadFile("docs/img/rooms.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms(t) {
		if !strings.Contains(string(picture), path.Base(r.name)) {
			t.Errorf("docs/img/rooms.svg has no room %s", r.name)
		}
	}
}

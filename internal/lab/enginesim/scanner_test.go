package enginesim

import (
	"math"
	"slices"
	"testing"
)

// An integer may have any form that pydantic and Python's json both accept, so no leading zero.
func TestScannerReadsIntegers(t *testing.T) {
	const none = math.MinInt
	for text, want := range map[string]int{
		`7`: 7, ` -7`: -7, `0`: 0, `5.0`: 5, `5e1`: 50, `null`: none, `9223372036854775807`: math.MaxInt64,
	} {
		s := scan([]byte(text))
		if got := s.integer(none); got != want || s.end() != nil {
			t.Errorf("%s is %d, %v; want %d", text, got, s.Err(), want)
		}
	}
	for _, text := range []string{
		`5.5`, `1e300`, `"7"`, `true`, `[7]`, `07`, `+7`, `7.`, `-`, ``, `nul`, `7 7`,
	} {
		s := scan([]byte(text))
		if got := s.integer(none); s.end() == nil {
			t.Errorf("%s is %d, want an error", text, got)
		}
	}
}

func TestScannerReadsNumbersAndFlags(t *testing.T) {
	for text, want := range map[string]float64{`1`: 1, `-0.25`: -0.25, `1e-3`: 0.001} {
		s := scan([]byte(text))
		if got := s.number(); got != want || s.end() != nil {
			t.Errorf("%s is %g, %v; want %g", text, got, s.Err(), want)
		}
	}
	if s := scan([]byte(`null`)); !math.IsNaN(s.number()) || s.end() != nil {
		t.Error("null is a number")
	}
	for text, want := range map[string]bool{`true`: true, `false`: false, `null`: false} {
		s := scan([]byte(text))
		if got := s.boolean(); got != want || s.end() != nil {
			t.Errorf("%s is %v, %v", text, got, s.Err())
		}
	}
	for _, text := range []string{`.5`, `01.5`, `1e999`, `"1"`, `{}`} {
		s := scan([]byte(text))
		if got := s.number(); s.end() == nil {
			t.Errorf("%s is %g, want an error", text, got)
		}
		s = scan([]byte(text))
		if got := s.boolean(); s.end() == nil {
			t.Errorf("%s is %v, want an error", text, got)
		}
	}
}

// Ids outside any vocabulary are parsed, because their error differs from the error of an invalid list.
func TestScannerReadsIDs(t *testing.T) {
	const most = math.MaxUint32
	for text, want := range map[string][]uint32{
		`[]`: {}, `[1,2, 3]`: {1, 2, 3}, `[ 1 , 2 ]`: {1, 2}, `[1,-5,2.0]`: {1, most, 2},
		`[4294967296,1]`: {most, 1}, `[null]`: {most},
	} {
		s := scan([]byte(text))
		if got := s.ids(nil); !slices.Equal(got, want) || s.end() != nil {
			t.Errorf("%s is %v, %v; want %v", text, got, s.Err(), want)
		}
	}
	for _, text := range []string{`[1,]`, `[1 2]`, `[01]`, `["1"]`, `[[1]]`, `[1`, `7`, ``} {
		s := scan([]byte(text))
		if got := s.ids(nil); s.end() == nil {
			t.Errorf("%s is %v, want an error", text, got)
		}
	}
	s := scan([]byte(`[7,8]`))
	if got := s.ids([]uint32{1}); !slices.Equal(got, []uint32{1, 7, 8}) {
		t.Errorf("appended to other ids: %v", got)
	}
}

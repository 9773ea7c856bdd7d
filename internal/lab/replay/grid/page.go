package grid

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var layout string

var layoutPage = template.Must(template.New("page").Funcs(template.FuncMap{
	"pc": func(x float64) string { return fmt.Sprintf("%.1f", x*100) },
	"x":  func(x float64) string { return fmt.Sprintf("%.2f", x) },
	"g":  func(x float64) string { return fmt.Sprintf("%.3g", x) },
	"ms": func(x float64) string { return fmt.Sprintf("%.0f", x*1e3) },
	"ahead": func(l Line) string {
		in, known := l.Ahead()
		if !known {
			return ""
		}
		return fmt.Sprintf("%+.1f to %+.1f", in.Low*100, in.High*100)
	},
	"goal": func(i int) string { return goals[i] },
}).Parse(layout))

// Page writes one page without other files: every cell with its best rival, and each side in its best shape.
func Page(w io.Writer, lines []Line, wanted int, shaped []Shaped) error {
	return layoutPage.Execute(w, struct {
		Sums                 []Summary
		Known                []KnownSummary
		Chart                template.HTML
		Lines                []Line
		Wanted               int
		Shaped               []Shaped
		ShapedSums           []ShapedSummary
		Ours, Rival, Unsplit Side
	}{Sum(lines), SumKnown(lines), chart(lines), lines, wanted, shaped, SumShaped(shaped), Ours, Rival, Unsplit})
}

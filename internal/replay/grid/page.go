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
}).Parse(layout))

// Page writes one page that needs nothing else: every cell beside its best rival.
func Page(w io.Writer, lines []Line, wanted int) error {
	return layoutPage.Execute(w, struct {
		Sums   []Summary
		Lines  []Line
		Wanted int
	}{Sum(lines), lines, wanted})
}

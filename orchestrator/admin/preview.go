package admin

import (
	"net/http"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
)

// showChanges tells what a reload would change now, a line each; nothing where the file says what is in
// force.
func (a *Admin) showChanges(w http.ResponseWriter, _ *http.Request) {
	var changes []config.Change
	err := ErrNoReload
	if a.o.Preview != nil {
		changes, err = a.o.Preview()
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	lines := make([]string, 0, len(changes)+1)
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(strings.Join(append(lines, ""), "\n")))
}

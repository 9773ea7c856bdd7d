package pinned

import (
	"errors"
	"fmt"
	"strings"
)

// Check returns an error that names each line of pins which gives no exact version, and one where the package
// of that name is not pinned to that version.
func Check(pins []byte, name, version string) error {
	var errs []error
	named := false
	for line := range strings.Lines(string(pins)) {
		line = strings.TrimSpace(line)
		of, pin, exact := strings.Cut(line, "==")
		if !strings.HasPrefix(line, "#") && (!exact || pin == "" || strings.ContainsAny(pin, "*<>,")) {
			errs = append(errs, fmt.Errorf("%q pins nothing", line))
		}
		named = named || of == name && pin == version
	}
	if !named {
		errs = append(errs, fmt.Errorf("%s==%s is not among the pins", name, version))
	}
	return errors.Join(errs...)
}

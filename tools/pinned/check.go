package pinned

import (
	"errors"
	"fmt"
	"strings"
)

// Check returns an error that names each line of pins without an exact version. It also returns an error if
// the named package is not pinned to the given version.
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

package orchestrator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/DeRuina/timberjack"

	"github.com/tandem-router/tandem/internal/config"
)

// writable reports whether the file of that name can be written, and makes the file where it is missing.
// device: it is no regular file. Nothing that has to be read by somebody is opened.
func writable(name string) (device bool, err error) {
	if standardStream(name) != nil {
		return true, nil
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, err
	case info.Mode()&fs.ModeNamedPipe != 0:
		return false, fmt.Errorf("%s is a pipe, which takes nothing while nobody reads it", name)
	case info.Mode()&fs.ModeCharDevice != 0:
		device = true
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is no file", name)
	}
	//nolint:gosec // the operator names it
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return device, err
	}
	return device, f.Close()
}

// standardStream is the stream of this process that name stands for, nil where it stands for something else.
// What the stream leads to may be anything, and cannot always be opened by a name.
func standardStream(name string) *os.File {
	switch name {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		return os.Stdout
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2":
		return os.Stderr
	}
	return nil
}

// openDecisions returns what writes to the file that cfg names. The file is opened by the first write. One
// that is a device is never renamed: a file would be put in the place of the device.
func openDecisions(cfg config.Decisions, device bool) io.WriteCloser {
	if device {
		return &deviceWriter{name: cfg.File}
	}
	return &timberjack.Logger{
		Filename: cfg.File, MaxSize: int(cfg.FileSize >> 20), MaxBackups: cfg.FileKeep, Compression: "none",
		FileMode: 0o600,
	}
}

// deviceWriter writes to a device or a standard stream.
type deviceWriter struct {
	name string
	f    *os.File // nil before the first write
}

func (w *deviceWriter) Write(p []byte) (int, error) {
	if stream := standardStream(w.name); stream != nil {
		return stream.Write(p)
	}
	if w.f == nil {
		f, err := os.OpenFile(w.name, os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // the operator names it
		if err != nil {
			return 0, err
		}
		w.f = f
	}
	return w.f.Write(p)
}

func (w *deviceWriter) Close() error {
	if w.f == nil {
		return nil
	}
	return w.f.Close()
}

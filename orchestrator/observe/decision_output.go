package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/DeRuina/timberjack"

	"github.com/tandem-router/tandem/internal/config"
)

// writable reports whether the named file can be written, and creates a missing file. device says that it is
// not a regular file. writable never waits for a reader of a pipe.
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
		return false, fmt.Errorf("%s is a pipe, which blocks without a reader", name)
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

// standardStream returns the stream of this process that name means; nil for other names. The target of the
// stream may be anything, and cannot always be opened by a name.
func standardStream(name string) *os.File {
	switch name {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		return os.Stdout
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2":
		return os.Stderr
	}
	return nil
}

// OpenDecisions returns the writer to the file that cfg names. The first write opens the file. A device is
// never renamed: otherwise a file would replace the device.
func OpenDecisions(cfg config.Decisions, device bool) io.WriteCloser {
	if device {
		return &deviceWriter{name: cfg.File}
	}
	return &LineFile{Name: cfg.File, Begin: `{"id":`, Open: func() (io.WriteCloser, error) {
		return &timberjack.Logger{
			Filename: cfg.File, MaxSize: int(cfg.FileSize >> 20), MaxBackups: cfg.FileKeep, Compression: "none",
			FileMode: 0o600,
		}, nil
	}}
}

// LineFile keeps a file of records whole: each write begins after the last whole line. A full disk, or a
// crash, may leave a part of a record.
type LineFile struct {
	Name  string
	Begin string                         // of each record
	Open  func() (io.WriteCloser, error) // opens the file for appending, and may rename it before if it is large
	out   io.WriteCloser                 // nil before the first write and after a failed write
}

// Write appends whole lines. After an error, the file has exactly the lines that are complete in the first n
// bytes of lines.
func (l *LineFile) Write(lines []byte) (n int, err error) {
	if l.out == nil {
		if err = l.endInWholeLine(); err != nil {
			return 0, err
		}
		if l.out, err = l.Open(); err != nil {
			l.out = nil
			return 0, err
		}
	}
	if n, err = l.out.Write(lines); err != nil {
		// A file that was opened before the cut may continue at its old offset, so it is opened again.
		err = errors.Join(err, l.Close(), l.endInWholeLine())
	}
	return n, err
}

// Close may be called several times.
func (l *LineFile) Close() error {
	if l.out == nil {
		return nil
	}
	out := l.out
	l.out = nil
	return out.Close()
}

// endInWholeLine removes an incomplete record at the end of the file. If the last line is not a record, it
// gets a line end instead, because the operator may have named a file with other contents.
func (l *LineFile) endInWholeLine() error {
	f, err := os.OpenFile(l.Name, os.O_RDWR, 0) //nolint:gosec // the operator names it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(cutRest(f, []byte(l.Begin)), f.Close())
}

// cutRest does the work of endInWholeLine on an open file. Each record begins with begin.
func cutRest(f *os.File, begin []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	whole := size // length of the part that has not been searched yet
	for chunk := make([]byte, 64<<10); whole > 0; {
		part := chunk[:min(whole, int64(len(chunk)))]
		if _, err := f.ReadAt(part, whole-int64(len(part))); err != nil {
			return err
		}
		end := bytes.LastIndexByte(part, '\n')
		if end >= 0 {
			whole -= int64(len(part) - end - 1)
			break
		}
		whole -= int64(len(part))
	}
	if whole == size {
		return nil
	}
	rest := make([]byte, min(size-whole, int64(len(begin))))
	if _, err := f.ReadAt(rest, whole); err != nil {
		return err
	}
	if !bytes.HasPrefix(begin, rest) {
		_, err = f.WriteAt([]byte{'\n'}, size)
		return err
	}
	return f.Truncate(whole)
}

// deviceWriter writes to a device or a standard stream. A failed write may have written a part of a line. So
// the next write begins a new line.
type deviceWriter struct {
	name string
	f    *os.File // nil before the first write
	torn bool
}

func (w *deviceWriter) Write(lines []byte) (int, error) {
	if w.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := w.write(lines)
	w.torn = err != nil
	return n, err
}

func (w *deviceWriter) write(p []byte) (int, error) {
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

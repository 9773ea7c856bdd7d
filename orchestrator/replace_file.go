package orchestrator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// stateBehind returns the file that links called name lead to, existing or not. Something that is no file
// must not be replaced: a rename would replace a device by a file.
func stateBehind(name string) (string, error) {
	for range maxLinks {
		to, err := os.Readlink(name)
		if err != nil {
			break // it is none
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(name) + string(filepath.Separator) + to
		}
		name = to
	}
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return name, nil
	case err == nil && !info.Mode().IsRegular():
		err = errNoFile
	}
	return name, err
}

// maxLinks is how many links lead to a file at most, as in Linux.
const maxLinks = 40

// replaceFile writes beside the file and renames, so that a reader finds the old file or the new one. A link
// to the file stays a link.
func replaceFile(name string, data []byte) error {
	name, err := stateBehind(name)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".tandem-state-*") // readable for this user only
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

package orchestrator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// stateBehind returns the file to which name leads through links; the file need not exist. Only a regular
// file may be replaced: a rename would replace a device by a file.
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

// maxLinks is the largest number of links to a file, as in Linux.
const maxLinks = 40

// replaceFile writes a new file and renames it, so that a reader finds either the old or the new content. A
// link to the file stays a link.
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

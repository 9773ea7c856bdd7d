package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// tarball is an archive whose bytes depend on its files alone: all files belong to root and have the same
// time.
type tarball struct {
	file *os.File
	zip  *gzip.Writer
	tar  *tar.Writer
	at   time.Time
}

func createTar(name string, at time.Time) (*tarball, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	t := &tarball{file: f, zip: gzip.NewWriter(f), at: at}
	t.tar = tar.NewWriter(t.zip)
	return t, nil
}

// finish closes the archive, and adds an error of the close to err.
func (t *tarball) finish(err error) error {
	return errors.Join(err, t.tar.Close(), t.zip.Close(), t.file.Close())
}

func (t *tarball) dir(name string, mode int64) error {
	return t.tar.WriteHeader(
		&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: t.at, Format: tar.FormatPAX},
	)
}

func (t *tarball) add(name string, mode int64, data []byte) error {
	h := tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: t.at, Format: tar.FormatPAX,
	}
	if err := t.tar.WriteHeader(&h); err != nil {
		return err
	}
	_, err := t.tar.Write(data)
	return err
}

// tree adds a folder with all below it, under the name at.
func (t *tarball) tree(at, root string) error {
	return filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error { // in order of names
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name := path.Join(at, filepath.ToSlash(below))
		switch {
		case name == ".":
			return nil
		case e.IsDir():
			return t.dir(name, 0o755)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return t.add(name, int64(info.Mode().Perm()), data)
	})
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// user is the user id in the image: an unprivileged user, not root. Distroless images have the same number.
const user = "65532"

// Media types in an image, see https://github.com/opencontainers/image-spec.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platformOf       `json:"platform,omitempty"`
}

type platformOf struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

type index struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
}

type imageConfig struct {
	platformOf
	Created string    `json:"created"`
	Config  runConfig `json:"config"`
	RootFS  rootFS    `json:"rootfs"`
	History []history `json:"history"`
}

type runConfig struct {
	User         string
	ExposedPorts map[string]struct{}
	Env          []string
	Entrypoint   []string
	Cmd          []string
	WorkingDir   string
	Labels       map[string]string
	StopSignal   string
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type history struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

// platformImage is an image with one layer for one processor: its descriptor and its blobs.
type platformImage struct {
	manifest, config, layer descriptor
	blobs                   [][]byte
}

// image makes the image for a processor. It writes an archive for docker load, podman load, skopeo and crane,
// and keeps the image for imageOfAll. It needs no daemon.
func (m *maker) image(root, arch string) error {
	layer := m.path("layer.tar.gz")
	defer os.Remove(layer)
	if err := m.layer(root, layer); err != nil {
		return err
	}
	data, err := os.ReadFile(layer)
	if err != nil {
		return err
	}
	plain, err := gunzip(data)
	if err != nil {
		return err
	}
	created := m.at.Format(time.RFC3339)
	made := packImage(imageConfig{
		platformOf{arch, "linux"},
		created, m.runConfig(),
		rootFS{"layers", []string{digest(plain)}},
		[]history{{created, "make release"}},
	}, data)
	m.images = append(m.images, made)
	return m.writeImage("linux_"+arch, m.named(made.manifest), m.dockerList(made), made)
}

func packImage(config imageConfig, layer []byte) platformImage {
	configured := marshal(config)
	i := platformImage{config: describeBlob(configType, configured), layer: describeBlob(layerType, layer)}
	text := marshal(manifest{2, manifestType, i.config, []descriptor{i.layer}})
	i.manifest = describeBlob(manifestType, text)
	i.manifest.Platform = &config.platformOf
	i.blobs = [][]byte{configured, layer, text}
	return i
}

// imageOfAll writes the images of all processors under one name, for registries: a pull gets the image for
// its own processor.
func (m *maker) imageOfAll() error {
	all := index{Schema: 2, MediaType: indexType}
	for _, one := range m.images {
		all.Manifests = append(all.Manifests, one.manifest)
	}
	text := marshal(all)
	top := platformImage{blobs: [][]byte{text}}
	return m.writeImage("linux", m.named(describeBlob(indexType, text)), nil, append(m.images, top)...)
}

// layer is the file system: the binary, CA certificates, a user, and a folder for temporary files.
func (m *maker) layer(root, name string) error {
	certificates, err := os.ReadFile(m.certificates)
	if err != nil {
		return fmt.Errorf("CA certificates: %w", err)
	}
	t, err := createTar(name, m.at)
	if err != nil {
		return err
	}
	for _, dir := range []string{
		"etc", "etc/ssl", "etc/ssl/certs", "etc/tandem", "usr", "usr/bin", "usr/share", "usr/share/doc",
	} {
		err = errors.Join(err, t.dir(dir, 0o755))
	}
	binary, read := os.ReadFile(filepath.Join(root, "usr/bin/tandem"))
	return t.finish(errors.Join(
		err, read, t.dir("tmp", 0o1777),
		t.add("etc/passwd", 0o644,
			[]byte("root:x:0:0:root:/:/sbin/nologin\ntandem:x:"+user+":"+user+":tandem:/:/sbin/nologin\n")),
		t.add("etc/group", 0o644, []byte("root:x:0:\ntandem:x:"+user+":\n")),
		t.add("etc/ssl/certs/ca-certificates.crt", 0o644, certificates),
		t.add("usr/bin/tandem", 0o755, binary),
		t.tree("usr/share/doc/tandem", filepath.Join(root, "usr/share/doc/tandem")),
	))
}

func (m *maker) runConfig() runConfig {
	return runConfig{
		User: user + ":" + user, ExposedPorts: map[string]struct{}{"8000/tcp": {}, "9091/tcp": {}},
		Env:        []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		Entrypoint: []string{"/usr/bin/tandem"}, Cmd: []string{"serve", "--config", "/etc/tandem/tandem.yaml"},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title": "tandem", "org.opencontainers.image.version": m.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.created":  m.at.Format(time.RFC3339),
		},
		StopSignal: "SIGTERM",
	}
}

// named is a descriptor with the image's name, which a load of the archive gives to it.
func (m *maker) named(d descriptor) descriptor {
	d.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": imageTag(m.version),
		"io.containerd.image.name":          "docker.io/library/tandem:" + imageTag(m.version),
	}
	return d
}

// dockerList is Docker's older list of an archive's contents, for one processor.
func (m *maker) dockerList(i platformImage) []byte {
	return marshal([]map[string]any{{
		"Config": blobName(i.config.Digest), "RepoTags": []string{"tandem:" + imageTag(m.version)},
		"Layers": []string{blobName(i.layer.Digest)},
	}})
}

// writeImage writes the archive: blobs by their digests, an index with the one named image, and Docker's
// list.
func (m *maker) writeImage(platform string, top descriptor, docker []byte, images ...platformImage) error {
	f, err := os.Create(m.path(fmt.Sprintf("tandem_%s_%s.image.tar", packageVersion(m.version), platform)))
	if err != nil {
		return err
	}
	t := &tarball{file: f, tar: tar.NewWriter(f), at: m.at}
	for _, image := range images {
		for _, blob := range image.blobs {
			err = errors.Join(err, t.add(blobName(digest(blob)), 0o644, blob))
		}
	}
	err = errors.Join(err, t.add("index.json", 0o644, marshal(index{2, indexType, []descriptor{top}})))
	if docker != nil {
		err = errors.Join(err, t.add("manifest.json", 0o644, docker))
	}
	return errors.Join(
		err, t.add("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		t.tar.Close(), f.Close(),
	)
}

func describeBlob(media string, data []byte) descriptor {
	return descriptor{MediaType: media, Digest: digest(data), Size: len(data)}
}

func blobName(digest string) string { return path.Join("blobs", "sha256", digest[len("sha256:"):]) }

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// marshal writes JSON of this package's types, which cannot fail.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

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

// user is who runs in the image: nobody in particular, and not root. Distroless images have the same number.
const user = "65532"

// Names of media in an image, as https://github.com/opencontainers/image-spec has them.
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

// image writes an image of one layer as an archive that docker load, podman load, skopeo and crane read. No
// daemon takes part.
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
	config := imageConfig{
		platformOf{arch, "linux"},
		created, m.runConfig(),
		rootFS{"layers", []string{digest(plain)}},
		[]history{{created, "make release"}},
	}
	return m.layout(arch, config, data)
}

// layer is the file system: the binary, authorities to trust, somebody to be, and room for temporary files.
func (m *maker) layer(root, name string) error {
	certificates, err := os.ReadFile(m.certificates)
	if err != nil {
		return fmt.Errorf("authorities to trust: %w", err)
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
		User: user + ":" + user, ExposedPorts: map[string]struct{}{"8000/tcp": {}, "9090/tcp": {}},
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

// layout writes the archive: blobs by their digests, an index of the one image, and Docker's older list
// beside it.
func (m *maker) layout(arch string, config imageConfig, layer []byte) error {
	name := m.path(fmt.Sprintf("tandem_%s_linux_%s.image.tar", packageVersion(m.version), arch))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	blobs := &tarball{file: f, tar: tar.NewWriter(f), at: m.at}
	configured := blobs.blob(&err, configType, marshal(config))
	packed := blobs.blob(&err, layerType, layer)
	one := blobs.blob(&err, manifestType, marshal(manifest{2, manifestType, configured, []descriptor{packed}}))
	one.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": m.version,
		"io.containerd.image.name":          "docker.io/library/tandem:" + m.version,
	}
	one.Platform = &config.platformOf
	docker := []map[string]any{{
		"Config": blobName(configured.Digest), "RepoTags": []string{"tandem:" + m.version},
		"Layers": []string{blobName(packed.Digest)},
	}}
	return errors.Join(
		err, blobs.add("index.json", 0o644, marshal(index{2, indexType, []descriptor{one}})),
		blobs.add("manifest.json", 0o644, marshal(docker)),
		blobs.add("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		blobs.tar.Close(), f.Close(),
	)
}

// blob adds data under its digest. Errors come together in err.
func (t *tarball) blob(err *error, media string, data []byte) descriptor {
	d := descriptor{MediaType: media, Digest: digest(data), Size: len(data)}
	*err = errors.Join(*err, t.add(blobName(d.Digest), 0o644, data))
	return d
}

func blobName(digest string) string { return path.Join("blobs", "sha256", digest[len("sha256:"):]) }

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// marshal writes what cannot fail: types of our own, without functions or cycles.
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

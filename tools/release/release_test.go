package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A SemVer version becomes a version without a dash, because rpm allows no dash.
func TestPackageVersion(t *testing.T) {
	for said, want := range map[string]string{
		"v1.2.0":                       "1.2.0",
		"v1.2.0-rc.1":                  "1.2.0~rc.1",
		"v0.1.0-dev.57+gabc1234":       "0.1.0~dev.57+gabc1234",
		"v0.1.0-dev.57+gabc1234.dirty": "0.1.0~dev.57+gabc1234.dirty",
		"v0.2.0-rc.1.dev.3+gabc1234":   "0.2.0~rc.1.dev.3+gabc1234",
		"v1.0.0-alpha-2":               "1.0.0~alpha.2",
		"dev":                          "0~dev",
	} {
		if got := packageVersion(said); got != want {
			t.Errorf("%s becomes %s, want %s", said, got, want)
		}
	}
	if got := imageTag("v0.1.0-dev.57+gabc"); got != "v0.1.0-dev.57-gabc" {
		t.Errorf("the tag of an image is %s", got)
	}
}

// dpkg sorts packages like SemVer: a commit after a release comes after this release and before the next.
func TestPackageVersionsSort(t *testing.T) {
	dpkg, err := exec.LookPath("dpkg")
	if err != nil {
		t.Skip("sorting is dpkg's, which is not here")
	}
	order := []string{
		"dev", "v0.1.0-dev.9+gfff", "v0.1.0-dev.57+gabc", "v0.1.0-rc.1", "v0.1.0-rc.1.dev.3+g123", "v0.1.0-rc.2",
		"v0.1.0", "v0.1.1-dev.1+gaaa", "v0.1.1-dev.12+g000", "v0.1.1", "v0.2.0", "v0.10.0",
	}
	for i := range order[1:] {
		before, after := packageVersion(order[i]), packageVersion(order[i+1])
		err := exec.CommandContext(t.Context(), dpkg, "--compare-versions", before, "lt", after).Run()
		if err != nil {
			t.Errorf("%s does not sort before %s: %v", before, after, err)
		}
	}
}

// The script prints the tag at a tag, and otherwise a version between the last release and the next.
func TestVersionScript(t *testing.T) {
	repository := t.TempDir()
	script, err := os.ReadFile("../version.sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := put(repository, "tools/version.sh", script); err != nil {
		t.Fatal(err)
	}
	sh := func(command string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-c", command)
		c.Dir = repository
		c.Env = append(os.Environ(),
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(repository))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const commit = "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x"
	for _, step := range []struct{ do, want string }{
		{"true", `^v0\.0\.0-dev$`},
		{"git init -q && git add . && " + commit, `^v0\.1\.0-dev\.1\+g[0-9a-f]{7,}$`},
		{commit, `^v0\.1\.0-dev\.2\+g[0-9a-f]{7,}$`},
		{"git tag v0.1.0-rc.1", `^v0\.1\.0-rc\.1$`},
		{commit, `^v0\.1\.0-rc\.1\.dev\.1\+g[0-9a-f]{7,}$`},
		{"git tag v0.1.0", `^v0\.1\.0$`},
		{commit, `^v0\.1\.1-dev\.1\+g[0-9a-f]{7,}$`},
		{"echo '#' >>tools/version.sh", `^v0\.1\.1-dev\.1\+g[0-9a-f]{7,}\.dirty$`},
	} {
		sh(step.do)
		got := sh("sh tools/version.sh")
		if !regexp.MustCompile(step.want).MatchString(got) || !semVer.MatchString(got) {
			t.Errorf("after %q the version is %s, want %s", step.do, got, step.want)
		}
	}
}

// imageMaker makes images of a file system with a binary of a few bytes.
func imageMaker(t *testing.T) (m maker, root string) {
	t.Helper()
	root, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"usr/bin/tandem": "binary", "usr/share/doc/tandem/LICENSE": "license",
	} {
		if err := put(root, name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	certificates := filepath.Join(out, "authorities")
	if err := os.WriteFile(certificates, []byte("trusted"), 0o600); err != nil {
		t.Fatal(err)
	}
	return maker{
		version: "v1.0.0", out: out, certificates: certificates, at: time.Unix(1_700_000_000, 0).UTC(),
	}, root
}

// imageFiles are the files of an archive with an image. They refer to each other by digests.
type imageFiles map[string][]byte

func readImage(t *testing.T, name string) imageFiles {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, data)
}

func (f imageFiles) read(t *testing.T, name string, into any) {
	t.Helper()
	if err := json.Unmarshal(f[name], into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// blob reads the blob of a descriptor, and checks its digest and size.
func (f imageFiles) blob(t *testing.T, d descriptor, into any) []byte {
	t.Helper()
	text := f[blobName(d.Digest)]
	if digest(text) != d.Digest || len(text) != d.Size {
		t.Errorf("%v is not what it says, but %s of %d bytes", d, digest(text), len(text))
	}
	if into != nil {
		f.read(t, blobName(d.Digest), into)
	}
	return text
}

// An image has one layer, a configuration with the layer's digest, and an unprivileged user. Both lists lead
// to the same image.
func TestImage(t *testing.T) {
	m, root := imageMaker(t)
	if err := m.image(root, "arm64"); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(m.out, "tandem_1.0.0_linux_arm64.image.tar")
	first, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := readImage(t, name)
	var top index
	var one manifest
	var config imageConfig
	files.read(t, "index.json", &top)
	files.blob(t, top.Manifests[0], &one)
	files.blob(t, one.Config, &config)
	packed := files.blob(t, one.Layers[0], nil)
	if config.Architecture != "arm64" || config.Config.User != "65532:65532" ||
		config.Config.Entrypoint[0] != "/usr/bin/tandem" {
		t.Errorf("the configuration is %+v", config)
	}
	plain, err := gunzip(packed)
	if err != nil || digest(plain) != config.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %s, want %v: %v", digest(plain), config.RootFS.DiffIDs, err)
	}
	layer := untar(t, plain)
	if string(layer["usr/bin/tandem"]) != "binary" ||
		string(layer["etc/ssl/certs/ca-certificates.crt"]) != "trusted" || layer["tmp/"] == nil {
		t.Errorf("the file system has %d entries", len(layer))
	}
	var docker []struct{ Config, Layers any }
	if files.read(t, "manifest.json", &docker); docker[0].Config != blobName(one.Config.Digest) {
		t.Errorf("docker's list names %v", docker[0])
	}
	if err := m.image(root, "arm64"); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(name); err != nil || !bytes.Equal(again, first) {
		t.Errorf("the same image made again has other bytes: %v", err)
	}
}

// The image for all processors has one name and contains the image of each processor with all its blobs.
func TestImageOfAll(t *testing.T) {
	m, root := imageMaker(t)
	archs := []string{"amd64", "arm64"}
	for _, arch := range archs {
		if err := m.image(root, arch); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.imageOfAll(); err != nil {
		t.Fatal(err)
	}
	files := readImage(t, filepath.Join(m.out, "tandem_1.0.0_linux.image.tar"))
	var top, all index
	files.read(t, "index.json", &top)
	if len(top.Manifests) != 1 || top.Manifests[0].MediaType != indexType {
		t.Fatalf("the archive names %+v, want one index", top.Manifests)
	}
	files.blob(t, top.Manifests[0], &all)
	if len(all.Manifests) != len(archs) {
		t.Fatalf("the index has %+v, want %v", all.Manifests, archs)
	}
	for i, arch := range archs {
		var one manifest
		var config imageConfig
		files.blob(t, all.Manifests[i], &one)
		files.blob(t, one.Config, &config)
		files.blob(t, one.Layers[0], nil)
		if said := all.Manifests[i].Platform; said.Architecture != arch || config.Architecture != arch {
			t.Errorf("image %d is of %s in the index and of %s in itself, want %s",
				i, said.Architecture, config.Architecture, arch)
		}
		var own index
		readImage(t, filepath.Join(m.out, "tandem_1.0.0_linux_"+arch+".image.tar")).read(t, "index.json", &own)
		if own.Manifests[0].Digest != all.Manifests[i].Digest {
			t.Errorf("%s is another image in the archive of its own", arch)
		}
	}
}

// untar returns the files of an archive; folders have a slash at the end, and no content.
func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = append([]byte{}, text...)
	}
}

// The bill of materials names every part once, and the binary by its checksum.
func TestBill(t *testing.T) {
	m := maker{version: "v1.0.0", at: time.Unix(1_700_000_000, 0).UTC()}
	parts := []part{
		{name: "a", version: "v1", purl: "pkg:golang/a@v1"},
		{name: "libzmq", version: "4", purl: "pkg:github/z@4", license: "MIT"},
	}
	b := m.bill(built{parts: parts}, [32]byte{1, 2, 3})
	if len(b.Components) != 2 ||
		!slices.Equal(b.Dependencies[0].On, []string{"pkg:golang/a@v1", "pkg:github/z@4"}) {
		t.Errorf("the bill is %+v", b)
	}
	if b.Components[1].Licenses[0].Expression != "MIT" || b.Components[0].Licenses != nil {
		t.Errorf("the licenses are %+v", b.Components)
	}
	if !regexp.MustCompile(
		`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
	).MatchString(b.Serial) {
		t.Errorf("%s is no UUID", b.Serial)
	}
	if got := b.Metadata.Component.Hashes[0].Content; !strings.HasPrefix(got, "010203") || len(got) != 64 {
		t.Errorf("the binary has the checksum %s", got)
	}
}

// Every file that a package takes from the repository is there, and the unit starts what the package
// installs.
func TestPackagedFiles(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for _, from := range installed {
		if _, err := os.Stat(from); err != nil {
			t.Error(err)
		}
	}
	unit, err := os.ReadFile(installed["usr/lib/systemd/system/tandem.service"])
	if err != nil ||
		!strings.Contains(string(unit), "\nExecStart=/usr/bin/tandem serve --config /etc/tandem/tandem.yaml\n") {
		t.Errorf("the unit starts something else: %v", err)
	}
	for line := range strings.Lines(string(unit)) { // libzmq aborts if it may not call sched_setscheduler
		if strings.HasPrefix(line, "SystemCallFilter=~") && strings.Contains(line, "@resources") {
			t.Errorf("the unit forbids what libzmq needs: %s", line)
		}
	}
}

// A checksum has the form that sha256sum -c reads, and is right.
func TestSums(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
	if got, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS")); err != nil || string(got) != want {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
	if err := checkSum(filepath.Join(dir, "a"), want[:64]); err != nil {
		t.Error(err)
	}
	if err := checkSum(filepath.Join(dir, "a"), libzmqSum); err == nil {
		t.Error("another file was accepted as libzmq")
	}
}

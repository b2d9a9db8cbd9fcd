package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	// uid is the user of every product image, the one distroless calls nonroot. Manifests state it too, as a kubelet that must
	// prove runAsNonRoot needs a number.
	uid = 65532

	binDir = "/usr/local/bin"
	caFile = "/etc/ssl/certs/ca-certificates.crt"
)

// epoch stands in for every time in an image. The clock would make each build a new digest.
var epoch = time.Unix(0, 0).UTC()

// entry is one path of a layer. Directories have no content and a mode with the directory bit.
type entry struct {
	path    string
	content []byte
	dir     bool
	mode    int64
}

// base lists what a static Go program expects of the machine around it: a name for its uid, roots to check TLS against, and a
// place for temporary files (a manifest with a read-only root mounts over it).
func base(roots []byte) []entry {
	passwd := fmt.Sprintf("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/home/nonroot:/sbin/nologin\n", uid, uid)
	group := fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", uid)
	return []entry{
		{path: "/etc/passwd", content: []byte(passwd), mode: 0o644},
		{path: "/etc/group", content: []byte(group), mode: 0o644},
		{path: caFile, content: roots, mode: 0o644},
		{path: "/tmp", dir: true, mode: 0o1777},
	}
}

// pack makes the image from binaries already compiled. It is a pure function of its arguments: equal input, equal digest.
func pack(image Image, arch string, binaries map[string][]byte, roots []byte) (v1.Image, error) {
	layers := make([]v1.Layer, 0, len(image.Binaries)+1)
	if !image.Bare {
		layer, err := layerOf(base(roots))
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	// One layer a binary: a rebuilt gateway then costs its own bytes only.
	for _, binary := range image.Binaries {
		layer, err := layerOf([]entry{{path: path.Join(binDir, binary.Name), content: binaries[binary.Name], mode: 0o755}})
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	packed, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, fmt.Errorf("assemble image %s: %w", image.Name, err)
	}
	file, err := packed.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Created = v1.Time{Time: epoch}
	file.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", uid, uid),
		Env:        []string{"PATH=" + binDir, "SSL_CERT_FILE=" + caFile},
		WorkingDir: "/",
	}
	if image.Root {
		file.Config.User = "0:0"
	}
	if image.Entrypoint != "" {
		file.Config.Entrypoint = []string{path.Join(binDir, image.Entrypoint)}
	}
	return mutate.ConfigFile(packed, file)
}

// layerOf writes entries, with the directories above them, as a layer owned by root: the program must not be able to change
// its own files.
func layerOf(entries []entry) (v1.Layer, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, e := range withParents(entries) {
		header := &tar.Header{
			Name: strings.TrimPrefix(e.path, "/"), Mode: e.mode, Size: int64(len(e.content)),
			Typeflag: tar.TypeReg, ModTime: epoch, Format: tar.FormatPAX,
		}
		if e.dir {
			header.Typeflag, header.Name, header.Size = tar.TypeDir, header.Name+"/", 0
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write %s: %w", e.path, err)
		}
		if _, err := writer.Write(e.content); err != nil {
			return nil, fmt.Errorf("write %s: %w", e.path, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	}, tarball.WithCompressionLevel(gzip.DefaultCompression)) // the library's own default is the fastest, a tenth larger
}

// withParents sorts entries and adds the directories that lead to them, so that no unpacker has to invent their modes.
func withParents(entries []entry) []entry {
	byPath := map[string]entry{}
	for _, e := range entries {
		for dir := path.Dir(e.path); dir != "/"; dir = path.Dir(dir) {
			if _, named := byPath[dir]; !named {
				byPath[dir] = entry{path: dir, dir: true, mode: 0o755}
			}
		}
		byPath[e.path] = e
	}
	all := make([]entry, 0, len(byPath))
	for _, e := range byPath {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return all
}

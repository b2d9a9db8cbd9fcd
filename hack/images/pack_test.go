package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var agent = Image{
	Name:       "agent",
	Binaries:   []Binary{{Name: "agentruntime"}},
	Entrypoint: "agentruntime",
}

func TestPackSaysWhoRunsAndWhat(t *testing.T) {
	tests := map[string]struct {
		image Image
		arch  string
		want  v1.Config
	}{
		"a product image is not root": {
			image: agent, arch: "arm64",
			want: v1.Config{
				User: "65532:65532", WorkingDir: "/",
				Env:        []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
				Entrypoint: []string{"/usr/local/bin/agentruntime"},
			},
		},
		"without an entrypoint the pod names the command": {
			image: Image{Name: "nisse", Binaries: agent.Binaries}, arch: "amd64",
			want: v1.Config{
				User: "65532:65532", WorkingDir: "/",
				Env: []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			},
		},
		"a cluster image may be root": {
			image: Image{Name: "coredns", Binaries: agent.Binaries, Root: true}, arch: "amd64",
			want: v1.Config{
				User: "0:0", WorkingDir: "/",
				Env: []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := mustPack(t, test.image, test.arch).ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, file.Config); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			if file.OS != "linux" || file.Architecture != test.arch {
				t.Errorf("platform is %s/%s, want linux/%s", file.OS, file.Architecture, test.arch)
			}
			if !file.Created.Equal(epoch) {
				t.Errorf("created %s: a clock in the image makes every build a new digest", file.Created)
			}
		})
	}
}

func TestPackLaysOutFiles(t *testing.T) {
	want := []string{
		"etc/ dir 755 0:0 0",
		"etc/group file 644 0:0 27",
		"etc/passwd file 644 0:0 94",
		"etc/ssl/ dir 755 0:0 0",
		"etc/ssl/certs/ dir 755 0:0 0",
		"etc/ssl/certs/ca-certificates.crt file 644 0:0 5",
		"tmp/ dir 1777 0:0 0",
		"usr/ dir 755 0:0 0",
		"usr/local/ dir 755 0:0 0",
		"usr/local/bin/ dir 755 0:0 0",
		"usr/local/bin/agentruntime file 755 0:0 6",
	}
	if diff := cmp.Diff(want, listing(t, mustPack(t, agent, "amd64"))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	bare := agent
	bare.Bare = true
	if diff := cmp.Diff(want[7:], listing(t, mustPack(t, bare, "amd64"))); diff != "" {
		t.Errorf("files of a bare image (-want +got):\n%s", diff)
	}
}

func TestPackIsReproducible(t *testing.T) {
	digest := func(image v1.Image) v1.Hash {
		t.Helper()
		hash, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	first := digest(mustPack(t, agent, "amd64"))
	if second := digest(mustPack(t, agent, "amd64")); first != second {
		t.Errorf("equal input gave %s and %s", first, second)
	}
	if other := digest(mustPack(t, agent, "arm64")); first == other {
		t.Error("two architectures gave one digest")
	}
}

func TestRootsVerifyAsCertificates(t *testing.T) {
	pem, err := roots()
	if err != nil {
		t.Fatal(err)
	}
	// Mozilla has had more than a hundred roots for years; far fewer means the bundle was misread.
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(pem) || len(pem) < 100_000 {
		t.Errorf("%d bytes of PEM do not look like a root store", len(pem))
	}
}

func TestChoose(t *testing.T) {
	if _, err := choose([]string{"nisse", "agnet"}); err == nil {
		t.Error("a misspelled image was accepted")
	}
	chosen, err := choose([]string{"nisse-agent"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Image{product[1]}, chosen); diff != "" {
		t.Errorf("chosen (-want +got):\n%s", diff)
	}
}

func TestTagNamesTheContentOrWhatWasAskedFor(t *testing.T) {
	digest, err := mustPack(t, agent, "amd64").Digest()
	if err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string]string{"dev": "dev", "v1": "v1", "digest": digest.Hex[:12]} {
		if got := tagOf(tag, digest); got != want {
			t.Errorf("tag %s became %s, want %s", tag, got, want)
		}
	}
}

func mustPack(t *testing.T, image Image, arch string) v1.Image {
	t.Helper()
	packed, err := pack(image, arch, map[string][]byte{"agentruntime": []byte("binary")}, []byte("roots"))
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// listing names every path of every layer with its kind, mode, owner and size, in order.
func listing(t *testing.T, image v1.Image) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		reader := tar.NewReader(content)
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			kind := "file"
			if header.Typeflag == tar.TypeDir {
				kind = "dir"
			}
			paths = append(paths, fmt.Sprintf("%s %s %o %d:%d %d", header.Name, kind, header.Mode, header.Uid, header.Gid, header.Size))
		}
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// Command images makes Nisse's container images without a container daemon:
//
//	go run ./hack/images -out dist/images                        # nisse and nisse-agent for this machine's architecture
//	go run ./hack/images -out dist/images -arch amd64,arm64      # both architectures
//	go run ./hack/images -out dist/images -only nisse            # one of them
//	go run ./hack/images -out d -prebuilt bin/coredns -tag 1.15  # an image of one binary that exists already
//
// Each image becomes a file <name>-linux-<arch>.tar, which `ctr -n k8s.io images import`, `docker load` and
// `kind load image-archive` all read. The same source gives the same digest on every machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

type options struct {
	out, repository, tag string
	arches               []string
	tags, version        string
	images               []Image
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, opts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	var (
		out        = flags.String("out", "dist/images", "directory that receives the image files")
		repository = flags.String("repository", "localhost", "what stands before the image name in its reference")
		tag        = flags.String("tag", "dev", "tag of the images; \"digest\" takes the first digits of each image's digest, so that another content has another name")
		arch       = flags.String("arch", runtime.GOARCH, "architectures, separated by commas: amd64, arm64")
		tags       = flags.String("tags", "goolm", "Go build tags, separated by commas")
		version    = flags.String("version", "", "version that the binaries report")
		only       = flags.String("only", "", "product images to make, separated by commas; all when empty")
		prebuilt   = flags.String("prebuilt", "", "make an image of this one static binary instead of the product's")
		root       = flags.Bool("root", false, "with -prebuilt: run as uid 0")
		bare       = flags.Bool("bare", false, "with -prebuilt: no CA certificates, no /etc/passwd, no /tmp")
	)
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q; name product images with -only", flags.Arg(0))
	}
	opts := options{out: *out, repository: *repository, tag: *tag, arches: list(*arch), tags: *tags, version: *version}
	for _, arch := range opts.arches {
		if arch != "amd64" && arch != "arm64" {
			return options{}, fmt.Errorf("architecture %q is not supported; use amd64 or arm64", arch)
		}
	}
	if *prebuilt == "" {
		var err error
		opts.images, err = choose(list(*only))
		return opts, err
	}
	if len(opts.arches) != 1 {
		return options{}, errors.New("-prebuilt is one file, thus of one architecture: give one -arch")
	}
	binary := filepath.Base(*prebuilt)
	opts.images = []Image{{
		Name: binary, Entrypoint: binary, Root: *root, Bare: *bare,
		Binaries: []Binary{{Name: binary, File: *prebuilt}},
	}}
	return opts, nil
}

func list(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
}

func run(ctx context.Context, opts options) error {
	if err := os.MkdirAll(opts.out, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "nisse-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	pem, err := roots()
	if err != nil {
		return err
	}
	for _, image := range opts.images {
		for _, arch := range opts.arches {
			binaries, err := compiler{arch: arch, tags: opts.tags, version: opts.version, dir: scratch}.compile(ctx, image)
			if err != nil {
				return err
			}
			packed, err := pack(image, arch, binaries, pem)
			if err != nil {
				return err
			}
			if err := save(packed, image, arch, opts); err != nil {
				return err
			}
		}
	}
	return nil
}

// save writes the image beside its final name first, so that a reader never sees half of one.
func save(packed v1.Image, image Image, arch string, opts options) error {
	digest, err := packed.Digest()
	if err != nil {
		return err
	}
	reference, err := name.NewTag(opts.repository + "/" + image.Name + ":" + tagOf(opts.tag, digest))
	if err != nil {
		return fmt.Errorf("image reference: %w", err)
	}
	file := filepath.Join(opts.out, fmt.Sprintf("%s-linux-%s.tar", image.Name, arch))
	if err := tarball.WriteToFile(file+".tmp", reference, packed); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return err
	}
	size, err := compressedSize(packed)
	if err != nil {
		return err
	}
	fmt.Printf("%s  %s  linux/%s  %.1f MB compressed  %s\n", file, reference, arch, float64(size)/1e6, digest)
	return nil
}

// tagOf turns the tag that was asked for into the image's own. A cluster whose pods name a content is updated by naming another.
func tagOf(tag string, digest v1.Hash) string {
	if tag == "digest" {
		return digest.Hex[:12]
	}
	return tag
}

// compressedSize is what a node downloads: the layers as they travel.
func compressedSize(image v1.Image) (int64, error) {
	layers, err := image.Layers()
	if err != nil {
		return 0, err
	}
	var total int64
	for _, layer := range layers {
		size, err := layer.Size()
		if err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}

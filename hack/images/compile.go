package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compiler turns packages of this module into static binaries for one architecture.
type compiler struct {
	arch string
	tags string
	// version is what the binaries call themselves; empty leaves their default.
	version string
	// dir receives the binaries; it belongs to the caller, who removes it.
	dir string
}

// compile builds every binary of an image with one call of the go command, which then shares the work between them, and
// returns the content of each by name. Binaries that were built before are only read.
func (c compiler) compile(ctx context.Context, image Image) (map[string][]byte, error) {
	contents := make(map[string][]byte, len(image.Binaries))
	var packages []string
	for _, binary := range image.Binaries {
		if binary.Package != "" {
			packages = append(packages, binary.Package)
		}
	}
	out := filepath.Join(c.dir, image.Name, c.arch)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if len(packages) > 0 {
		if err := c.build(ctx, out, packages); err != nil {
			return nil, fmt.Errorf("compile %s for %s: %w", image.Name, c.arch, err)
		}
	}
	for _, binary := range image.Binaries {
		file := binary.File
		if binary.Package != "" {
			file = filepath.Join(out, filepath.Base(binary.Package))
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read binary %s of image %s: %w", binary.Name, image.Name, err)
		}
		contents[binary.Name] = content
	}
	return contents, nil
}

// build leaves out everything that differs between two machines (paths, build id, version control state), so that the same
// source gives the same image digest.
func (c compiler) build(ctx context.Context, out string, packages []string) error {
	ldflags := "-s -w -buildid="
	if c.version != "" {
		ldflags += " -X nisse.io/nisse/internal/version.Version=" + c.version
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + ldflags, "-o", out + string(filepath.Separator)}
	if c.tags != "" {
		args = append(args, "-tags="+c.tags)
	}
	command := exec.CommandContext(ctx, "go", append(args, packages...)...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+c.arch)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}

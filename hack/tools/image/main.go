// Command image writes a container image with one static program and nothing else, as a file for "docker load",
// "ctr image import" or "crane push". It needs no container runtime, no base image and no registry.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is the user and group of the program. No host defines them.
const user = "65532:65532"

func main() {
	program := flag.String("program", "", "Path of the program. In the image it is in the root folder, under the same name.")
	architecture := flag.String("architecture", "", "Architecture that the program was built for, as GOARCH has it.")
	tag := flag.String("tag", "", "The image's name: registry/repository:tag.")
	output := flag.String("output", "", "File to write.")
	flag.Parse()
	if err := write(*program, *architecture, *tag, *output); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(program, architecture, tag, output string) error {
	reference, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	files, err := layer(program)
	if err != nil {
		return fmt.Errorf("--program: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	config.Config = v1.Config{Entrypoint: []string{"/" + filepath.Base(program)}, User: user}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	return tarball.WriteToFile(output, reference, image)
}

// layer returns a layer with only the program. It contains no times and no owners, so the same program always results
// in the same image.
func layer(program string) (v1.Layer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	if err := writer.WriteHeader(&tar.Header{Name: filepath.Base(program), Mode: 0o755, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
}

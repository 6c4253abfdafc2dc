// Command image writes a container image with one static program and, if it needs any, a folder of files, as a file for
// "docker load" or "ctr image import". It needs no container runtime, no base image and no registry. With -push, it
// pushes such files, one for each architecture, to a registry as one image, with the credentials of "docker login".
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user and group of the program. No host defines them.
const user = "65532:65532"

func main() {
	program := flag.String("program", "", "Path of the program. In the image it is in the root folder, under the same name.")
	folder := flag.String("folder", "", "Folder whose files are also in the image, readable for everyone, in a folder of the root with the same name.")
	architecture := flag.String("architecture", "", "Architecture that the program was built for, as GOARCH has it.")
	tag := flag.String("tag", "", "The image's name: registry/repository:tag.")
	output := flag.String("output", "", "File to write.")
	pushes := flag.Bool("push", false, "Push the files that the other arguments name to --tag.")
	flag.Parse()
	act := func() error { return write(*program, *folder, *architecture, *tag, *output) }
	if *pushes {
		act = func() error { return push(*tag, flag.Args()) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(program, folder, architecture, tag, output string) error {
	reference, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	layers, err := layers(program, folder)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layers...)
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

// push pushes files that write has written as one image for all their architectures.
func push(tag string, files []string) error {
	reference, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	var additions []mutate.IndexAddendum
	for _, file := range files {
		image, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		additions = append(additions, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.DockerManifestList), additions...)
	return remote.WriteIndex(reference, index, remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// layers returns the layers of an image: that of the folder, which images can share, and that of the program.
func layers(program, folder string) ([]v1.Layer, error) {
	own, err := layer(file{program, filepath.Base(program), 0o755})
	if err != nil {
		return nil, fmt.Errorf("--program: %w", err)
	}
	if folder == "" {
		return []v1.Layer{own}, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("--folder: %w", err)
	}
	var files []file
	for _, entry := range entries {
		files = append(files, file{filepath.Join(folder, entry.Name()), filepath.Base(folder) + "/" + entry.Name(), 0o444})
	}
	shared, err := layer(files...)
	if err != nil {
		return nil, fmt.Errorf("--folder: %w", err)
	}
	return []v1.Layer{shared, own}, nil
}

// file is a file of an image: where it is, its name in the image, and its mode.
type file struct {
	path, name string
	mode       int64
}

// layer returns a layer with files. It contains no times and no owners, so the same files always result in the same
// image.
func layer(files ...file) (v1.Layer, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, f := range files {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		if err := writer.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(content); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
}

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the default user and group of the program. No host defines them.
const user = "65532:65532"

// nameAnnotations have the name of an image in an archive: containerd reads the first one, skopeo the second.
var nameAnnotations = [...]string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// writeImages writes images to an OCI archive. Each of them has one static program and the files of a folder, if it is
// not "", for one or more architectures: an argument is the image's name, the architecture as GOARCH has it, and the
// program.
func writeImages(output, folder string, args []string) error {
	var names []string
	ofName := map[string][]mutate.IndexAddendum{}
	shared, err := folderLayer(folder)
	if err != nil {
		return err
	}
	for _, arg := range args {
		parts := append(strings.Split(arg, ","), user)
		if len(parts) != 4 && len(parts) != 5 {
			return fmt.Errorf("%s: want NAME,ARCHITECTURE,PROGRAM[,USER]", arg)
		}
		if _, err := name.NewTag(parts[0], name.StrictValidation); err != nil {
			return err
		}
		image, err := newImage(parts[1], parts[2], parts[3], shared)
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		if ofName[parts[0]] == nil {
			names = append(names, parts[0])
		}
		ofName[parts[0]] = append(ofName[parts[0]], mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: parts[1]},
		}})
	}
	archive := v1.ImageIndex(empty.Index)
	for _, name := range names {
		annotations := map[string]string{}
		for _, key := range nameAnnotations {
			annotations[key] = name
		}
		archive = mutate.AppendManifests(archive, mutate.IndexAddendum{
			Add: mutate.AppendManifests(empty.Index, ofName[name]...), Descriptor: v1.Descriptor{Annotations: annotations},
		})
	}
	directory, err := os.MkdirTemp("", "images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	if _, err := layout.Write(directory, archive); err != nil {
		return err
	}
	return writeFile(output, func(w io.Writer) error { return writeTar(w, directory) })
}

// newImage returns the image of a program for an architecture. The program can be called by its name.
func newImage(architecture, program, user string, shared []v1.Layer) (v1.Image, error) {
	own, err := layer(file{program, filepath.Base(program), 0o755})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, append(shared[:len(shared):len(shared)], own)...); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	config.Config = v1.Config{Entrypoint: []string{"/" + filepath.Base(program)}, Env: []string{"PATH=/"}, User: user}
	return mutate.ConfigFile(image, config)
}

// push pushes the images of an archive, each as one image for all its architectures.
func push(archive string) error {
	directory, err := os.MkdirTemp("", "images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	if err := readTar(archive, directory); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	for _, descriptor := range manifest.Manifests {
		tag, err := name.NewTag(descriptor.Annotations[nameAnnotations[0]], name.StrictValidation)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		image, err := index.ImageIndex(descriptor.Digest)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if err := remote.WriteIndex(tag, image, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return err
		}
		fmt.Println(tag)
	}
	return nil
}

// folderLayer returns the layer of a folder, which images share: its files, readable for everyone, in a folder of the
// root with the same name.
func folderLayer(folder string) ([]v1.Layer, error) {
	if folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range entries {
		files = append(files, file{filepath.Join(folder, entry.Name()), filepath.Base(folder) + "/" + entry.Name(), 0o444})
	}
	shared, err := layer(files...)
	return []v1.Layer{shared}, err
}

// layer returns a layer with files.
func layer(files ...file) (v1.Layer, error) {
	var archive bytes.Buffer
	if err := pack(&archive, files...); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// file is a file of an archive: where it is, its name in the archive, and its mode.
type file struct {
	path, name string
	mode       int64
}

// pack writes files as a tar archive. It contains no times and no owners.
func pack(w io.Writer, files ...file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeTar writes all files of a directory as a tar archive.
func writeTar(w io.Writer, directory string) error {
	var files []file
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		within, err := filepath.Rel(directory, path)
		files = append(files, file{path, filepath.ToSlash(within), 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return pack(w, files...)
}

// readTar writes the files of a tar archive into a directory.
func readTar(archive, directory string) error {
	stream, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer stream.Close()
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	for files := tar.NewReader(stream); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, content, 0o644); err != nil {
			return err
		}
	}
}

// writeFile replaces a file when its content is complete.
func writeFile(path string, write func(io.Writer) error) error {
	next, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(write(next), next.Close()); err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return os.Rename(next.Name(), path)
}

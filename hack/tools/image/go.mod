// The program that writes Poolboot's images. It is a module of its own, so Poolboot does not require its dependencies.
module github.com/poolboot/cluster-api-bootstrap-provider-poolboot/hack/tools/image

go 1.26.0

require github.com/google/go-containerregistry v0.22.1

require (
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
)

// The real Ignition binary, built for the tests: `go build` in this folder needs cgo and Debian's libblkid-dev.
module github.com/poolboot/cluster-api-bootstrap-provider-poolboot/hack/tools/ignition

go 1.26.0

require github.com/coreos/ignition/v2 v2.27.0

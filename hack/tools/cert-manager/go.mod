// cert-manager's CustomResourceDefinitions, which tests install; nothing of it is built.
module github.com/poolboot/cluster-api-bootstrap-provider-poolboot/hack/tools/cert-manager

go 1.26.0

require github.com/cert-manager/cert-manager v1.21.2

// The CustomResourceDefinitions of the Prometheus operator, to which tests apply config/prometheus. Nothing of it is compiled.
module github.com/poolboot/cluster-api-bootstrap-provider-poolboot/hack/tools/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0

// Package kubestatemetrics tests config/kube-state-metrics with kube-state-metrics itself.
package kubestatemetrics

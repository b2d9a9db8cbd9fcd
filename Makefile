# Nisse. `make help` lists what there is.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Pure Go everywhere: the homeserver's encryption comes from goolm, SQLite from modernc.
export CGO_ENABLED := 0
export GOFLAGS := -tags=goolm
VERSION ?= 0.1.0
CACHE := $(or $(NISSE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nisse)
# Packages that need a running cluster are tested by `make e2e`.
UNIT := $(shell go list ./... 2>/dev/null | grep -v /test/e2e)

##@ Everyday

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*##/ {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Compile every binary into bin/.
	go build -trimpath -ldflags "-s -w -X nisse.io/nisse/internal/version.Version=$(VERSION)" -o bin/ ./cmd/...

.PHONY: test
test: ## Run every test that needs no cluster: units, properties, fuzz seeds, real API server, real homeserver, crash rig.
	@hack/test.sh $(UNIT)

.PHONY: test-floor
test-floor: ## Run the tests of the API against the oldest Kubernetes that is supported, 1.34.
	@KUBEBUILDER_ASSETS=$$(KUBERNETES_VERSION=$(or $(FLOOR),v1.34.2) hack/cluster/build.sh envtest-assets) hack/test.sh ./test/admission ./controllers/...

.PHONY: verify
verify: ## Regenerate, fail on a difference, lint, look for known vulnerabilities and dead links.
	hack/verify.sh

.PHONY: generate
generate: ## Regenerate deep copies, CRDs and the chart's generated templates.
	hack/generate.sh

##@ The whole product

.PHONY: demo
demo: ## Bring up cluster, homeserver, model, Nisse and a device on this machine, play the story, leave all running.
	hack/demo/up.sh

.PHONY: demo-down
demo-down: ## Stop what demo started. WIPE=1 removes its state too.
	hack/demo/down.sh $(if $(WIPE),wipe)

.PHONY: e2e
e2e: ## Test the whole product on a real cluster with a real homeserver.
	hack/e2e.sh

.PHONY: images
images: ## Build the container images into dist/images, without a container daemon.
	GOFLAGS= go run ./hack/images -out dist/images -tags goolm

##@ Measuring

.PHONY: bench
bench: ## Measure what docs/performance.md publishes.
	hack/bench.sh

.PHONY: bench-device
bench-device: ## Measure one call of nisse-device beside ssh, its memory and its size.
	hack/bench-device.sh

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (30s).
	hack/fuzz.sh $(or $(FUZZTIME),30s)

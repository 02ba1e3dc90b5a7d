# What to run: make demo · make test · make bench. Everything else serves these.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

PATH := $(HOME)/.cargo/bin:$(PATH)
export PATH
CARGO ?= cargo
RELEASE := target/release
FUZZ_SECONDS ?= 20
DATAPATH ?= xdp
# Scenarios at a time. Workers of DPDK poll.
JOBS ?= $(if $(filter dpdk%,$(DATAPATH)),2,6)
# DPDK=1: with the data path over DPDK, of which the default build knows nothing.
DPDK ?= $(if $(filter dpdk%,$(DATAPATH)),1)
WITH_DPDK := --features slowpath/dpdk,turnpiked/dpdk
FEATURES := $(if $(filter 1,$(DPDK)),--features turnpiked/dpdk)

.PHONY: help setup setup-all setup-fuzz build test demo scenarios deb image test-packages test-monitoring test-helm test-docs test-page test-nrf test-nupf screenshots page-programs acceptance bench bench-container fuzz-smoke docs lint fmt golden verify clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t14

setup: ## install Debian packages that are missing; check the Rust toolchain
	@scripts/setup.sh $(if $(filter dpdk-memif,$(DATAPATH)),--tests,$(if $(filter 1,$(DPDK)),--dpdk))

setup-all: # what tests, lints and packages need beside
	@scripts/setup.sh --tests

setup-fuzz: # what cargo's fuzz targets need beside
	@scripts/setup.sh --fuzz

# Not for tests: each commit would link their programs anew.
build deb: export TURNPIKE_COMMIT := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)

build: setup ## turnpiked, turnpike and lab, optimised; DPDK=1: with the data path over DPDK
	$(CARGO) build --release --locked --bins $(FEATURES)

demo: build ## the whole UPF with real traffic, in namespaces; KEEP=1 leaves it running; DATAPATH=dpdk|dpdk-pipeline|dpdk-memif|kernel
	$(RELEASE)/lab --datapath $(DATAPATH) demo $(if $(filter 1,$(KEEP)),--keep)

scenarios: build ## every scenario on one data path; DATAPATH=dpdk|dpdk-pipeline|dpdk-memif|kernel
	$(RELEASE)/lab --datapath $(DATAPATH) scenario --all --jobs $(JOBS)

# Of the programs that tests have built.
test-packages: setup-all ## Debian packages on a bare Debian with systemd, and the image under podman: install, kill, upgrade and purge under traffic
	$(CARGO) build --locked --workspace --bins --tests $(WITH_DPDK)
	PACKAGES=build/test-packages PREBUILT=target/debug DEB_BUILD_OPTIONS=noautodbgsym scripts/deb.sh
	tests/packages/check.py build/test-packages
	scripts/image.sh build/test-packages
	tests/packages/image.py build/test-packages

# Of the same turnpiked.
test-helm: setup-all ## the Helm chart and the compose file: schemas, values that are refused, configurations that turnpiked takes
	@scripts/setup.sh --helm
	$(CARGO) build --locked --workspace --bins --tests $(WITH_DPDK)
	tests/helm/check.py target/debug/turnpiked

# PREBUILT=target/debug: of a turnpiked that is there.
page-programs:
	@scripts/setup.sh --page
	$(if $(PREBUILT),,$(CARGO) build --locked -p turnpiked)

test-page: page-programs ## the page of REST in headless Chromium: each view with 0, 1 and 100 000 sessions, tokens, a restart
	tests/page/check.py --turnpiked $(or $(PREBUILT),target/debug)/turnpiked

# PREBUILT=target/debug: of programs that are there.
test-docs: setup ## links, commands and keys of the documentation, and what the tutorial and the how-tos tell to type, run beside the demonstration
	$(if $(PREBUILT),,$(CARGO) build --locked --bins)
	tests/docs/check.py --programs $(or $(PREBUILT),target/debug) --self-test --run

# PREBUILT=target/debug: of programs that are there.
test-nrf: ## registration with NRFs: profile, heartbeats, order, tokens, TLS, reload; NRFs that are silent, slow, endless, huge or garbage
	@scripts/setup.sh --nrf
	$(if $(PREBUILT),,$(CARGO) build --locked -p turnpiked -p turnpike)
	tests/nrf/check.py --turnpiked $(or $(PREBUILT),target/debug)/turnpiked

# PREBUILT=target/debug: of programs that are there.
test-nupf: ## events for consumers: what they may ask for and are told, to the octet; consumers that are silent, slow, hostile or away
	@scripts/setup.sh --nrf
	$(if $(PREBUILT),,$(CARGO) build --locked -p turnpiked -p turnpike)
	tests/nupf/check.py --turnpiked $(or $(PREBUILT),target/debug)/turnpiked

screenshots: page-programs ## pictures for the README: of the page after 15 minutes of traffic, and of turnpike top
	$(if $(PREBUILT),,$(CARGO) build --locked --bins)
	tests/docs/check.py --programs $(or $(PREBUILT),target/debug) --picture docs/pictures/top.svg
	tests/page/check.py --turnpiked $(or $(PREBUILT),target/debug)/turnpiked --pictures docs/pictures

test: setup-all ## every test: unit, property, golden, data path, scenarios
	$(MAKE) -C datapath test
	scripts/test.py --check
	CARGO=$(CARGO) scripts/test.py
	$(CARGO) test --locked --workspace --doc $(WITH_DPDK)

deb: ## Debian packages turnpike, turnpike-dpdk and turnpike-lab, into build/deb
	@scripts/setup.sh --packages
	scripts/deb.sh

image: deb ## OCI image of turnpiked from these packages, build/deb/turnpike.oci.tar
	scripts/image.sh build/deb

test-monitoring: ## alerts, their tests and runbook, and the dashboard, as lint does; then mistakes in them that must be found
	@scripts/setup.sh --monitoring
	tests/monitoring/check.py --self-test

acceptance: FUZZ_SECONDS = 120
acceptance: setup-all setup-fuzz ## what the gate has short forms of, in full; its output is kept in docs/acceptance/; FUZZ_SECONDS=120
	@scripts/setup.sh --helm
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/acceptance.sh

bench: build ## the figures, as lines `figure NAME VALUE UNIT floor VALUE`
	scripts/bench.sh

bench-container: image ## what a container costs, inside beside outside, on each data path; RUNS=5
	scripts/image.sh build/deb turnpike-dpdk
	$(CARGO) build --release --locked -p lab
	benches/container.py build/deb --runs $(or $(RUNS),5) --out benches/results/container/$(shell date +%F).json

fuzz-smoke: setup-fuzz ## each fuzz target for FUZZ_SECONDS
	$(MAKE) -C datapath fuzz FUZZ_SECONDS=$(FUZZ_SECONDS)
	scripts/fuzz.sh $(FUZZ_SECONDS)

golden: ## golden cases again from their generator; fails if the committed ones differ
	/usr/bin/python3 tests/golden/make.py --check

verify: setup ## every build of the XDP program from the oldest and the newest compiler, shown to the verifier
	$(MAKE) -C datapath verify CLANGS="clang-14 clang-19"

docs: setup-all ## API documentation, warnings as errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace $(WITH_DPDK)

lint: setup-all ## formatting, lints, alerts, and dependencies that may not be, as errors
	@scripts/setup.sh --lint
	$(CARGO) fmt --all --check
	scripts/drops.py --check
	scripts/figures.py --check
	scripts/circles.py
	scripts/types.py
	tests/monitoring/check.py
	tests/docs/check.py
	build/tools/bin/cargo-deny --locked check bans licenses sources
	# What is installed: without DPDK, and without what only tests have.
	$(CARGO) clippy --locked --workspace --lib --bins -- -D warnings
	$(CARGO) clippy --locked --workspace --all-targets $(WITH_DPDK) -- -D warnings

fmt:
	$(CARGO) fmt --all

clean:
	$(CARGO) clean
	rm -rf build

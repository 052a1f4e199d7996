# Everything that a working day needs. `make` alone lists it.

SHELL := /bin/sh
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The command line that tests start: DORMOUSE_BIN=program names one that is built already.
PROGRAM := $(or $(DORMOUSE_BIN),$(abspath $(TARGET))/debug/dormouse)
SUITE ?= conformance/fixtures
REFERENCE ?= openarmature==0.17.0
SEEDS ?= 1000
FROM ?= 0
SLEEPERS ?= 100000

.DEFAULT_GOAL := help
.PHONY: help program run test simulate record-fixtures record-openapi conformance bench bench-cold starts bench-cost bench-agent bench-workspace bench-sleepers bench-overload bench-local bench-receipts bench-replay bench-extended bench-compare build lint lint-infra test-api test-clients test-console test-mcp test-aws test-cdk test-guest test-arm64 test-faults soak deploy destroy

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

program:
	@$(if $(DORMOUSE_BIN),,$(CARGO) build --workspace --bin dormouse)

run: ## Run everything on this machine and print a guided tour; ARGS='--port 9000' changes how
	@echo "building (the first time takes some minutes)"
	@$(CARGO) build --workspace --bin dormouse
	@exec $(TARGET)/debug/dormouse dev $(ARGS)

# Cargo builds the command line with the tests, and before it runs the first.
test: ## Run all tests and conformance fixtures, and count them in the end
	@mkdir -p $(TARGET)
	@{ DORMOUSE_BIN='$(PROGRAM)' $(CARGO) test --workspace --no-fail-fast 2>&1; \
	   echo $$? > $(TARGET)/test.status; } | tee $(TARGET)/test.log
	@echo
	@awk '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
	      /^error: (test failed|could not compile)/ { suites = suites "\n  " $$0 } \
	      /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped/ { fixtures = $$0 } \
	      END { printf "tests:       %d passed, %d failed, %d ignored\n", passed, failed, ignored; \
	            printf "conformance: %s%s\n", (fixtures ? fixtures : "did not run"), suites }' $(TARGET)/test.log
	@exit $$(cat $(TARGET)/test.status)

simulate: ## Run the simulation on SEEDS=1000 seeds from FROM=0 on; ARGS='--seed 7' replays one, step by step
	@echo "building with optimisation (the first time takes some minutes)"
	@$(CARGO) run --quiet --release --package dormouse-tests --bin simulate -- $(or $(ARGS),--seeds $(SEEDS) --from $(FROM))

record-fixtures: ## Keep the records that this version writes, so that later versions are tested against them
	@$(CARGO) run --quiet --package dormouse-tests --bin record-fixtures

record-openapi: ## Store the OpenAPI document of the protocol as the types make it
	@$(CARGO) run --quiet --package dormouse-protocol --example openapi > shared/protocol/src/openapi.json.new
	@mv shared/protocol/src/openapi.json.new shared/protocol/src/openapi.json

conformance: ## Run the conformance fixtures in SUITE=folder (without it: our own)
	@$(CARGO) run --quiet --package dormouse-conformance --bin conformance -- $(SUITE)

bench: ## Measure the engine (time and allocations per step), and round trips and capacity units of changes and streams
	@$(CARGO) bench --package dormouse-engine --bench engine
	@$(CARGO) bench --package dormouse-engine --bench typed
	@echo 'counting, not timing: an unoptimised build will do'
	@$(CARGO) bench --quiet --profile dev --package dormouse-tests --bench round_trips
	@$(CARGO) bench --quiet --profile dev --package dormouse-tests --bench tasks

build: ## Build build/<arch>/<function>.zip for Lambda; ARCH='arm64' or ARCH='x86_64' builds for one machine only
	@functions/build.sh $(ARCH)

# Run as they are deployed, on the machine that this one is.
HOST := $(subst aarch64,arm64,$(shell uname -m))

bench-cold: ## Measure how long each function needs to its first answer, its memory and its size; ROUNDS=30 is quicker
	@COMPARE=1 functions/build.sh $(HOST)
	@# Optimised: the functions wait for its Runtime API and its store, and those times must not be most of it.
	@DORMOUSE_PROGRAMS="$(abspath $(TARGET))/$$(cat build/$(HOST)/target)/lambda" DORMOUSE_ZIPS='$(abspath build/$(HOST))' \
	 $(CARGO) bench --quiet --profile release --package dormouse-tests --bench cold_start

starts: ## Write anew what runs at the start of the functions, which the linker lays side by side; needs valgrind
	@functions/build.sh $(HOST)
	@traces="$$(mktemp -d)" && DORMOUSE_TRACES="$$traces" DORMOUSE_ZIPS='$(abspath build/$(HOST))' \
	 DORMOUSE_PROGRAMS="$(abspath $(TARGET))/$$(cat build/$(HOST)/target)/lambda/symbols" \
	 $(CARGO) bench --quiet --profile release --package dormouse-tests --bench cold_start && \
	 '$(abspath $(TARGET))/debug/dormouse-link' list "$$traces"/* > "$$traces.txt" && \
	 mv "$$traces.txt" functions/link/starts.txt && rm -r "$$traces" && wc -l functions/link/starts.txt

bench-cost: ## Count what a suspended and resumed turn costs by the length of its session's history, and in dollars
	@$(CARGO) bench --quiet --profile dev --package dormouse-tests --bench cost

bench-agent: ## Count and time what a step of an agent costs, by the length of its conversation: requests, units, our own time
	@echo "building with optimisation (the first time takes some minutes)"
	@$(CARGO) bench --quiet --profile release --package dormouse-tests --bench agent

bench-workspace: ## Load a workspace of 50 agents, 200 skills and 100 actions: within 50 ms, and what did not change is not read again
	@echo "building with optimisation (the first time takes some minutes)"
	@$(CARGO) bench --quiet --profile release --package dormouse-tests --bench workspace

bench-sleepers: ## Fill a store with SLEEPERS=100000 invocations: a resume and a sweep must cost what they cost among a thousand
	@echo "building with optimisation (the first time takes some minutes)"
	@SLEEPERS='$(SLEEPERS)' $(CARGO) bench --quiet --profile release --package dormouse-tests --bench sleepers

bench-local: program ## Run CYCLES=32000 pauses and approvals in local mode: the last must cost what the first ones did
	@CYCLES='$(or $(CYCLES),32000)' DORMOUSE_BIN='$(PROGRAM)' \
	 $(CARGO) test --quiet --workspace --test local_mode -- a_cycle_costs --nocapture

bench-overload: ## Ask more of local mode than it can do: as much must get done as at its best, within a fifth
	@echo "building with optimisation (the first time takes some minutes)"
	@$(CARGO) build --quiet --release --workspace --bin dormouse
	@DORMOUSE_BIN='$(abspath $(TARGET))/release/dormouse' $(CARGO) bench --quiet --profile release --package dormouse-tests --bench overload

bench-compare: ## Measure the engine beside the Python reference implementation, on the same graphs
	@[ -d $(TARGET)/reference ] || python3 -m venv $(TARGET)/reference
	@# It asks for Python 3.12; the script says how an older one runs it.
	@$(TARGET)/reference/bin/pip install --quiet --ignore-requires-python $(REFERENCE) || true
	@REFERENCE_PYTHON='$(abspath $(TARGET))/reference/bin/python' $(CARGO) bench --quiet --package dormouse-engine --bench compare

lint: ## Check format and lints
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --all-targets -- -D warnings

lint-infra: ## Check the template and its scripts with pinned cfn-lint, checkov and shellcheck
	@infra/lint.sh

test-api: program ## Try the API of local mode with requests made from its OpenAPI document; ARGS='--max-examples 500' tries more
	@DORMOUSE_BIN='$(PROGRAM)' tests/api/run.sh $(ARGS)

test-clients: program ## Try local mode with clients that others wrote: A2A, WebSockets, Standard Webhooks; ARGS='webhooks_come_in_once' tries one
	@DORMOUSE_BIN='$(PROGRAM)' tests/api/clients.sh $(ARGS)

test-console: program ## Go through the console in a headless Chromium; pictures of it are left in build/console; ONLY='two tabs' goes through less
	@DORMOUSE_BIN='$(PROGRAM)' ONLY='$(ONLY)' tests/console/run.sh

test-mcp: ## Judge our MCP client by the official conformance suite, which needs node
	@CARGO='$(CARGO)' tests/mcp/run.sh

test-aws: ## Build, deploy to an emulator of AWS on this machine, and go the tour through the front door
	@tests/aws/run.sh

test-cdk: ## Deploy what the CDK makes of the construct to an emulator of AWS, and have something approved there
	@tests/aws/cdk.sh

test-guest: ## Deploy a package of `dormouse new` to an emulator of AWS by its own Makefile, and have something approved there
	@tests/aws/guest.sh

test-arm64: ## Build the functions for arm64, as they are deployed, and run their tests on a machine that QEMU makes
	@CARGO='$(CARGO)' tests/arm64/run.sh

test-faults: ## Tell whole turns through a fault proxy on the wire; RULES=file.json adds rules of yours, ROUNDS=10 tells more
	@RULES='$(if $(RULES),$(abspath $(RULES)))' ROUNDS='$(ROUNDS)' CARGO='$(CARGO)' tests/faults/run.sh $(ARGS)

soak: program ## Kill local mode KILLS=100 times under load, and runs of agents ROUNDS=34 times, six at a time: nothing may be lost or done twice
	@KILLS='$(or $(KILLS),100)' DORMOUSE_BIN='$(PROGRAM)' \
	 $(CARGO) test --quiet --workspace --test local_mode -- kills_under_load kills_between_receipts
	@DORMOUSE_TEST_ROUNDS='$(or $(ROUNDS),34)' DORMOUSE_BIN='$(PROGRAM)' \
	 $(CARGO) test --quiet --workspace --test local_mode -- kills_at_any_moment kills_while_models_think

bench-receipts: ## Measure receipts: 10,000 verified, one sealed, and what one adds to the end of a task in requests and write units
	@echo 'goals: 10,000 read and verified in 2 s, one sealed in 1 ms; no further request, 4 write units at most'
	@$(CARGO) bench --quiet --package dormouse-receipts --bench verify
	@$(CARGO) test --quiet --workspace --test api -- a_receipt_takes_no_request --nocapture

bench-extended: ## Count what quotas and webhooks cost; measure tokens, 1,000 open sockets, and a tenant beside a noisy one
	@echo 'goals: a quota takes no request and 2 write units of a commit at most; a delivery is one transaction'
	@$(CARGO) test --quiet --workspace --test api -- a_quota_takes a_delivery_is_one --nocapture
	@echo "building with optimisation (the first time takes some minutes)"
	@$(CARGO) build --quiet --release --workspace --bin dormouse
	@DORMOUSE_BIN='$(abspath $(TARGET))/release/dormouse' $(CARGO) bench --quiet --profile release --package dormouse-tests --bench extended

bench-replay: ## Replay RUNS=1000 recorded runs of ten steps, in memory, without any model or tool
	@DORMOUSE_TEST_REPLAYS='$(or $(RUNS),1000)' $(CARGO) test --quiet --workspace --test api -- runs_of_ten_steps --nocapture

deploy: ## Build, and deploy to your account: STAGE=dev; ARCHITECTURE=x86_64 and what else infra/deploy.sh lists
	@functions/build.sh $(or $(ARCHITECTURE),arm64)
	@ZIPS='$(abspath build/$(or $(ARCHITECTURE),arm64))' infra/deploy.sh

destroy: ## Remove everything that deploy and the functions made: STAGE=dev
	@infra/destroy.sh

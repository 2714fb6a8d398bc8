# The front door. `make demo` and `make test` do all the set-up a bare Debian 12 needs.
.PHONY: build install demo test python bench fuzz format format-check tidy setup setup-tests setup-checks clean help

help:
	@echo 'make demo     train one network in fp32, static 8 bits and on a cyclic schedule, and compare'
	@echo 'make test     everything that is checked: unit, golden, resume and program tests, fuzzing and the campaign in brief'
	@echo 'make build    build/lowtide'
	@echo 'make install  program, libraries, manual pages, completions; into PREFIX (/usr/local)'
	@echo 'make python   the Python package, build/python, and its tests'
	@echo 'make bench    step times and micro-benchmarks'
	@echo 'make format   clang-format over the sources;  make tidy: clang-tidy'
	@echo 'make clean    remove what was built'

setup:
	@scripts/setup.sh

setup-tests:
	@scripts/setup.sh tests

setup-checks:
	@scripts/setup.sh checks

# The program alone: the tests take as long again.
build: setup
	@cmake --preset release -DLOWTIDE_TESTS=OFF > /dev/null
	@cmake --build build --target lowtide shell_files

PREFIX ?= /usr/local
install: build
	@cmake --install build --prefix $(PREFIX)

demo: build
	@scripts/demo.sh

test: setup-tests fuzz
	@cmake --preset release -DLOWTIDE_TESTS=ON > /dev/null
	@cmake --build build
	@ctest --test-dir build --output-on-failure --no-tests=error -j $$(nproc)
	@CAMPAIGN_SEED=1 scripts/campaign.sh 0.5

python: setup-tests
	@cmake --preset release -DLOWTIDE_TESTS=ON -DLOWTIDE_PYTHON=ON > /dev/null
	@cmake --build build --target lowtide python_tests
	@ctest --test-dir build -R '^Python' --output-on-failure --no-tests=error -j $$(nproc)

fuzz: setup-tests
	@scripts/fuzz.sh

bench: setup-tests
	@cmake --preset release -DLOWTIDE_BENCH=ON > /dev/null
	@cmake --build build
	@scripts/bench.sh

sources = $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')

format: setup-checks
	@clang-format -i $(sources)

format-check: setup-checks
	@clang-format --dry-run --Werror $(sources)

# Looks at what changed since the last time; other rules are for every file. The first time takes minutes: clang-tidy
# goes through all of libtorch's headers for every file.
tidy: build-tidy/build.ninja
	@cmake --build build-tidy

build-tidy/build.ninja: .clang-tidy | setup-checks
	@rm -rf build-tidy
	@cmake --preset tidy > /dev/null

clean:
	@rm -rf build build-*

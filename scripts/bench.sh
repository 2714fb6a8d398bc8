#!/usr/bin/env bash
# Step times of the models, engine by engine, and the micro-benchmarks of the kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

build/lowtide bench step --model cifar-resnet20
echo
build/lowtide bench step --model cifar-mobilenet-v2 --repeat 5
echo
build/bench/kernels

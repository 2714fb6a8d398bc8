#!/usr/bin/env bash
# Step times of the models in the README's table, in fp32 and on integers, and the micro-benchmarks of the kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
  build/lowtide bench step --engines fp32,integer "$@"
  echo
}

step --model cifar-resnet20
step --model cifar-resnet74 --repeat 5
step --model cifar-mobilenet-v2 --repeat 5
step --model resnet18 --batch 16 --repeat 5
build/bench/kernels

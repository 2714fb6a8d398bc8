#!/usr/bin/env bash
# Builds against the PyTorch 2.x that python3 has, with CUDA, into build-cuda. Further arguments go to CMake.
set -euo pipefail
cd "$(dirname "$0")/.."

torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
cmake --preset cuda -DCMAKE_PREFIX_PATH="$torch${LOWTIDE_PREFIX_PATH:+;$LOWTIDE_PREFIX_PATH}" "$@"
cmake --build build-cuda

#!/usr/bin/env bash
# Builds against the PyTorch 2.x that python3 has, with CUDA, into build-cuda. Further arguments go to CMake.
set -euo pipefail
cd "$(dirname "$0")/.."

torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
python=$(python3 -c 'import sys; print(sys.executable)')
cmake --preset cuda -DCMAKE_PREFIX_PATH="$torch${LOWTIDE_PREFIX_PATH:+;$LOWTIDE_PREFIX_PATH}" \
      -DPython3_EXECUTABLE="$python" "$@"
cmake --build build-cuda

#!/usr/bin/env bash
# Builds against the PyTorch (2.1 or later) that python3 has, with CUDA, into build-cuda. Further arguments go to CMake.
set -euo pipefail
cd "$(dirname "$0")/.."

# PyTorch finds GPUs of 9.0 by itself, but not that they are 9.0a: products of bytes need its instructions.
capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u || true)
if [ "$capabilities" = 9.0 ]; then export TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST:-9.0a}; fi

torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
python=$(python3 -c 'import sys; print(sys.executable)')
cmake --preset cuda -DCMAKE_PREFIX_PATH="$torch${LOWTIDE_PREFIX_PATH:+;$LOWTIDE_PREFIX_PATH}" \
      -DPython3_EXECUTABLE="$python" "$@"
cmake --build build-cuda

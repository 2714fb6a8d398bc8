#!/usr/bin/env bash
# Compiles every CUDA kernel with nvcc, which needs neither a GPU nor torch, and reads what ptxas reports: none may keep
# registers in memory. Then their launches are tested on GPUs that are made up (tests/engine/cuda/). Exit code 77
# (skipped) where there is no nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v nvcc >/dev/null || { echo "check-cuda-kernels: skipped: no nvcc"; exit 77; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

compile() {
  local name
  name=$(echo "$1" | tr / -)
  nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. -Xptxas -v -c "$1" -o "$2/$name.o" >"$2/$name.log" 2>&1 ||
    { cat "$2/$name.log"; exit 1; }
}
export -f compile
find lowtide -name '*.cu' | xargs -P "$(nproc)" -I{} bash -c 'compile "$1" "$2"' _ {} "$out"

# A build without CUDA links none of them, so one that is left out of the build shows nowhere else.
for kernel in $(find lowtide -name '*.cu'); do
  room=$(echo "$kernel" | cut -d/ -f1-2)
  grep -q "${kernel#"$room"/}" "$room"/CMakeLists.txt "$room"/*.cmake 2>/dev/null ||
    { echo "check-cuda-kernels: $kernel is not among the sources of $room"; exit 1; }
done

kernels=$(cat "$out"/*.log | grep -c 'Compiling entry function')
echo "check-cuda-kernels: $kernels kernels"
[ "$kernels" -gt 0 ]
if grep -H 'bytes stack frame' "$out"/*.log | grep -v ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'; then
  echo "check-cuda-kernels: these kernels keep registers in memory"
  exit 1
fi

# A runtime of the tests' own takes the place of CUDA's.
nvcc -std=c++20 -I. -cudart none tests/engine/cuda/*.cpp "$out"/*.o -lgtest -lgtest_main -o "$out/launches"
"$out/launches" --gtest_brief=1

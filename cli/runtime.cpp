#include "cli/runtime.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "lowtide/base/cpus.h"
#include "lowtide/base/error.h"
#include "lowtide/base/tensor_memory.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

std::string program_version() { return fmt::format("lowtide {} (git {})", LOWTIDE_VERSION, LOWTIDE_GIT); }

std::string version_text() {
#ifdef LOWTIDE_WITH_CUDA
  constexpr const char* kCuda = "built with its kernels";
#else
  constexpr const char* kCuda = "no";
#endif
  return fmt::format("{}\nlibtorch {}\nengines: {} (integer with {})\nCUDA: {}\n", program_version(),
                     TORCH_VERSION, fmt::join(engine_names(), ", "),
                     integer::instruction_set_name(integer::instruction_sets().front()), kCuda);
}

namespace {

// A spin is a pause of some 20 ns, so this is some 20 µs: longer than the gaps between most passes of a step, shorter than
// a time slice by far. See docs/integer-engine.md for what it costs and gains.
constexpr const char* kSpins = "1000";

bool sets_openmp_waiting() {
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return false;
  setenv("GOMP_SPINCOUNT", kSpins, /*overwrite=*/0);
  return true;
}

bool sets_openblas_core() {
#if defined(__x86_64__)
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const auto core = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (core == nullptr || std::string_view(core()) != "Prescott" || getenv(kVariable) != nullptr) return false;
  if (__builtin_cpu_supports("avx512bw")) {
    setenv(kVariable, "SkylakeX", /*overwrite=*/0);
    return true;
  }
  if (__builtin_cpu_supports("avx2")) {
    setenv(kVariable, "Haswell", /*overwrite=*/0);
    return true;
  }
#endif
  return false;
}

}  // namespace

void tune_libraries(char** argv) {
  const bool waiting = sets_openmp_waiting(), core = sets_openblas_core();
  if (!waiting && !core) return;
  // By its name: lists of processes would call it "exe" otherwise.
  std::array<char, 4096> program{};
  if (readlink("/proc/self/exe", program.data(), program.size() - 1) > 0) execv(program.data(), argv);
}

void prepare_torch(int threads) {
  constexpr int kMostThreads = RunningOptions::kMostThreads;
  if (threads < 0 || threads > kMostThreads)
    throw UserError(fmt::format("threads is {}; expected 0 to {}", threads, kMostThreads));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    setenv("ATEN_CPU_CAPABILITY", "avx512", /*overwrite=*/0);
  }
#endif
  // A training step allocates and frees the same large blocks again and again. By default glibc maps and
  // unmaps each of them, and the kernel clears every page anew: a third of a step's time on two cores. −1 is no limit. Tensors
  // are kept apart from all else, and what oneDNN takes for itself comes from glibc.
  TensorMemory::install();
  mallopt(M_MMAP_THRESHOLD, -1);
  mallopt(M_TRIM_THRESHOLD, -1);
  at::set_num_threads(threads > 0 ? threads : usable_cpus());
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace lowtide

#include "lowtide/base/machine_error.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

bool has_one_of(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// Sizes that overflow are more than any machine has, too.
bool is_memory(std::string_view text) {
  return has_one_of(text, {"allocate memory", "out of memory", "size calculation overflowed",
                           "multiplication overflow", "STATUS_ALLOC_FAILED"});
}

bool is_of_gpu(std::string_view text) {
  return has_one_of(text, {"CUDA", "cudaGetDeviceCount", "cuDNN", "NVIDIA"});
}

// What a kernel of ours did, or how it was launched.
bool is_ours(std::string_view text) {
  return has_one_of(
      text, {"illegal memory access", "illegal address", "illegal instruction", "misaligned address",
             "invalid address space", "invalid program counter", "device-side assert", "invalid argument",
             "invalid configuration", "invalid resource handle", "too many resources", "stream is capturing",
             "previous error during capture"});
}

std::string first_line(const char* text) {
  const std::string_view all(text);
  return std::string(all.substr(0, all.find('\n')));
}

std::optional<std::string> told_by_message(const std::string& line) {
  const bool on_gpu = is_of_gpu(line);
  if (is_memory(line))
    return on_gpu ? "out of memory on the GPU; choose a smaller --batch, a smaller model, fewer --jobs, or "
                    "--recompute"
                  : "out of memory; choose a smaller --batch, a smaller model or data, or --recompute";
  if (!on_gpu || is_ours(line)) return std::nullopt;
  if (has_one_of(line, {"no kernel image", "invalid device function", "kernel image is invalid"}))
    return "the GPU has no kernels in this build: it is too old, or another than the program was built for; "
           "build it there (scripts/build-cuda.sh), or use --device cpu";
  if (has_one_of(line, {"No CUDA GPUs", "no CUDA-capable device"}))
    return "CUDA finds no GPU; look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use --device cpu";
  if (has_one_of(line, {"driver"})) return fmt::format("{}; mend the driver, or use --device cpu", line);
  if (has_one_of(line, {"CUDA error", "CUDA unknown error", "CUDA: ", "cuDNN error", "cudaGetDeviceCount"}))
    return fmt::format("{}; the GPU failed: `nvidia-smi` and the system's log may say why", line);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> machine_error(const std::exception& error) {
  if (dynamic_cast<const UserError*>(&error) != nullptr) return std::nullopt;
  // A length error: more than a container can count.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return told_by_message("out of memory");
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error))
    return told_by_message(first_line(of_torch->what_without_backtrace()));
  if (dynamic_cast<const std::runtime_error*>(&error) != nullptr)
    return told_by_message(first_line(error.what()));
  return std::nullopt;
}

}  // namespace lowtide

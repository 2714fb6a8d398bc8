#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lowtide {

// Work that is launched again and again on the same memory of a GPU, as CUDA graphs: captured once and replayed, so that
// thousands of launches become one. On a CPU, and in a build without CUDA, work is launched as it is.
class CudaGraphs {
 public:
  explicit CudaGraphs(const c10::Device& device);
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // Launches what `work` launches: as it is the first times, then captured, and replayed from there on. `work` reads nothing on
  // the host and leaves its results in the same tensors whenever it is replayed. Works that launch other kernels, or on other
  // memory, have other keys.
  void run(const std::string& key, const std::function<void()>& work);

  std::int64_t captures() const;
  std::int64_t kernels() const;  // of the graph that ran last; 0 where none did

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lowtide

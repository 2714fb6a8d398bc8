#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// A GPU's memory, for benchmarks that need no torch.

namespace lowtide::cuda::bench {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t n, int fill = 0x7f) : n_(n) {
    check(cudaMalloc(&p_, n * sizeof(T) + 256), "cudaMalloc");
    check(cudaMemset(p_, fill, n * sizeof(T)), "cudaMemset");  // poison: what is not written shows
  }
  explicit Buffer(const std::vector<T>& v) : Buffer(v.size()) {
    check(cudaMemcpy(p_, v.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(p_); }

  T* get() const { return p_; }
  operator T*() const { return p_; }  // NOLINT
  std::size_t size() const { return n_; }
  std::vector<T> host() const {
    check(cudaDeviceSynchronize(), "kernels");
    std::vector<T> v(n_);
    check(cudaMemcpy(v.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return v;
  }

 private:
  T* p_ = nullptr;
  std::size_t n_;
};

}  // namespace lowtide::cuda::bench

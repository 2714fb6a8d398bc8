#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <vector>

namespace lowtide::cuda {

// A second stream for what nothing waits for soon: weight gradients, beside the chain of passes that leads back through a
// trunk. What it reads is held until it is done; a few pieces of work may lie behind, no more, so that memory does not grow.
class SideStream {
 public:
  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Launches work that follows all that was launched on the current stream. `work` is given the stream to launch on.
  void run(const std::function<void(void* stream)>& work, std::vector<at::Tensor> reads);
  // What is launched on the current stream from now on follows all of it.
  void join();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lowtide::cuda

#include "lowtide/engine/cuda/side_stream.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>

namespace lowtide::cuda {
namespace {

constexpr std::size_t kMostPending = 4;

struct Pending {
  at::cuda::CUDAEvent done;
  std::vector<at::Tensor> reads;
};

}  // namespace

struct SideStream::State {
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  std::deque<Pending> pending;

  void finish_oldest() {
    pending.front().done.block(c10::cuda::getCurrentCUDAStream());
    pending.pop_front();
  }
};

SideStream::SideStream() = default;
SideStream::~SideStream() = default;

void SideStream::run(const std::function<void(void* stream)>& work, std::vector<at::Tensor> reads) {
  if (!state_) state_ = std::make_unique<State>();
  at::cuda::CUDAEvent ready;
  ready.record(c10::cuda::getCurrentCUDAStream());
  ready.block(state_->stream);
  work(state_->stream.stream());
  Pending& added = state_->pending.emplace_back();
  added.done.record(state_->stream);
  added.reads = std::move(reads);
  if (state_->pending.size() > kMostPending) state_->finish_oldest();
}

void SideStream::join() {
  while (state_ && !state_->pending.empty()) state_->finish_oldest();
}

}  // namespace lowtide::cuda

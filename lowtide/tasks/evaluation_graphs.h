#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/cuda_graphs.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/execution.h"

namespace lowtide {

// What an evaluation computes of its batches: on a GPU, where the engine allows it, as CUDA graphs, one for each shape of a batch and
// each number of bits. Replayed or not, a batch gives the same bits.
class EvaluationGraphs {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Work = std::function<Tensors(const Tensors& inputs)>;

  // What `work` makes of the inputs at the precision in force. It launches the same for inputs of the same sizes whatever they hold,
  // and reads nothing on the host.
  Tensors run(const Execution& execution, const Tensors& inputs, const Work& work);

  std::int64_t captures() const { return graphs_ ? graphs_->captures() : 0; }

 private:
  // What graphs read and write stays where it is.
  struct Batch {
    Tensors inputs, outputs;
  };

  std::optional<CudaGraphs> graphs_;  // from the first batch on
  std::map<std::string, Batch> batches_;
};

}  // namespace lowtide

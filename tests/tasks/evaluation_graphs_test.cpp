#include "lowtide/tasks/evaluation_graphs.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "lowtide/base/cuda_stream.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

using Tensors = EvaluationGraphs::Tensors;

std::shared_ptr<Execution> execution_of(const std::string& engine) {
  auto execution = std::make_shared<Execution>();
  execution->engine = make_engine(engine);
  return execution;
}

TEST(EvaluationGraphs, OnACpuABatchIsComputedAsItIs) {
  const auto execution = execution_of("simulated");
  EvaluationGraphs graphs;
  const torch::Tensor x = normal({3, 4}, 1);
  const void* seen = nullptr;
  const auto outputs = graphs.run(*execution, {x}, [&](const Tensors& inputs) {
    seen = inputs[0].data_ptr();
    return Tensors{inputs[0] * 2};
  });
  EXPECT_EQ(seen, x.data_ptr()) << "no copy";
  EXPECT_TRUE(same(outputs.at(0), x * 2));
  EXPECT_EQ(graphs.captures(), 0);
}

class CudaEvaluationGraphs : public testing::Test {
 protected:
  void SetUp() override {
    if (!kWithCuda || !torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  }

  // How often `work` was asked for, in so many batches of these rows.
  int calls(const Execution& execution, const std::vector<std::int64_t>& rows) {
    int calls = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const torch::Tensor x = normal({rows[i], 4}, i).cuda();
      const auto outputs = graphs_.run(execution, {x}, [&](const Tensors& inputs) {
        ++calls;
        return Tensors{inputs[0] * 2, inputs[0].sum()};
      });
      kept_.emplace_back(outputs.at(0), x * 2);
    }
    return calls;
  }
  void expect_all_right() const {
    for (const auto& [actual, expected] : kept_) EXPECT_TRUE(same(actual, expected));
  }

  EvaluationGraphs graphs_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

TEST_F(CudaEvaluationGraphs, EachShapeIsCapturedOnceForItsBits) {
  const auto execution = execution_of("cuda");
  EXPECT_EQ(calls(*execution, {5, 5, 5, 5, 5}), 3) << "two as they are, one captured";
  EXPECT_EQ(calls(*execution, {5, 3, 5, 3}), 2) << "the shorter batch as it is";
  execution->bits = {4, 8};
  EXPECT_EQ(calls(*execution, {5, 5, 5, 5}), 3);
  EXPECT_EQ(graphs_.captures(), 2);
  expect_all_right();
}

TEST_F(CudaEvaluationGraphs, WhatIsListenedToOrCannotBeCapturedIsNot) {
  const auto simulated = execution_of("simulated"), heard = execution_of("cuda"), own = execution_of("cuda");
  heard->listener = [](const LayerEvent&) {};
  own->batch_statistics = true;
  for (const auto& execution : {simulated, heard, own}) EXPECT_EQ(calls(*execution, {5, 5, 5, 5}), 4);
  EXPECT_EQ(graphs_.captures(), 0);
  expect_all_right();
}

}  // namespace
}  // namespace lowtide

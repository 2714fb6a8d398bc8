#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/testing.h"  // close_to

namespace lowtide {

// A file of recorded inputs and outputs: a dictionary of tensors in PyTorch's zip format.
class GoldenFile {
 public:
  // A name is looked up in golden_dir(); an absolute path is taken as it is.
  explicit GoldenFile(const std::filesystem::path& name);

  const torch::Tensor& operator[](const std::string& key) const;
  bool has(const std::string& key) const { return tensors_.count(key) > 0; }

  // The tensors whose names start with the prefix, without it.
  std::map<std::string, torch::Tensor> under(const std::string& prefix) const;

 private:
  std::string name_;
  std::map<std::string, torch::Tensor> tensors_;
};

}  // namespace lowtide

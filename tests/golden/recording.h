#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lowtide/base/torch.h"
#include "tests/testing.h"  // close_to

namespace lowtide {

using TensorMap = std::map<std::string, torch::Tensor>;

// Recorded inputs and outputs: tensors with names.
class Recording {
 public:
  // A file of golden_dir(): a dictionary of tensors in PyTorch's zip format. They lie on device_under_test().
  explicit Recording(const std::string& file);

  const torch::Tensor& operator[](const std::string& key) const;
  std::int64_t number(const std::string& key) const { return (*this)[key].item<std::int64_t>(); }
  // Of a tensor of whole numbers.
  std::vector<std::int64_t> numbers(const std::string& key) const;
  bool has(const std::string& key) const { return tensors_.count(key) > 0; }

  // What is recorded under a prefix, by the names without it: under("step0.")["x"] is ["step0.x"].
  Recording under(const std::string& prefix) const;
  // under("c0."), under("c1."), …: as many as there are, and one at least.
  std::vector<Recording> numbered(const std::string& stem) const;
  // The layers with an input and an output under "io.".
  std::vector<std::string> layers() const;

  const TensorMap& tensors() const { return tensors_; }
  const std::string& name() const { return name_; }

 private:
  Recording() = default;

  std::string name_;  // the file's, and the prefix
  TensorMap tensors_;
};

}  // namespace lowtide

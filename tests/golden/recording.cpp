#include "tests/golden/recording.h"

#include <torch/cuda.h>
#include <torch/serialize.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "lowtide/tasks/setup.h"
#include "tests/golden/golden_dir.h"

namespace lowtide {
namespace {

// On a GPU: products of floats as floats, and the same ones each time.
class TestDevice final : public testing::Environment {
 public:
  void SetUp() override {
    if (device_under_test().is_cpu()) return;
    if (!torch::cuda::is_available()) GTEST_SKIP() << "nothing was run: no CUDA device";
    allow_tf32(false);
    at::globalContext().setDeterministicCuDNN(true);
  }
};

const testing::Environment* const kTestDevice = testing::AddGlobalTestEnvironment(new TestDevice);

}  // namespace

Recording::Recording(const std::string& file) : name_(file + ": ") {
  std::ifstream stream(golden_dir() / file, std::ios::binary);
  if (!stream) throw std::runtime_error("no golden file " + (golden_dir() / file).string());
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  for (const auto& item : torch::pickle_load(bytes).toGenericDict()) {
    tensors_[item.key().toStringRef()] = item.value().toTensor().to(device_under_test());
  }
}

const torch::Tensor& Recording::operator[](const std::string& key) const {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) throw std::runtime_error("no tensor " + name_ + key);
  return found->second;
}

std::vector<std::int64_t> Recording::numbers(const std::string& key) const {
  const torch::Tensor values = (*this)[key].cpu().contiguous();
  return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
}

Recording Recording::under(const std::string& prefix) const {
  Recording part;
  part.name_ = name_ + prefix;
  for (auto item = tensors_.lower_bound(prefix); item != tensors_.end() && item->first.starts_with(prefix);
       ++item) {
    part.tensors_[item->first.substr(prefix.size())] = item->second;
  }
  return part;
}

std::vector<Recording> Recording::numbered(const std::string& stem) const {
  std::vector<Recording> parts;
  for (;;) {
    Recording part = under(stem + std::to_string(parts.size()) + ".");
    if (part.tensors_.empty()) break;
    parts.push_back(std::move(part));
  }
  if (parts.empty()) throw std::runtime_error("nothing under " + name_ + stem + "0.");
  return parts;
}

std::vector<std::string> Recording::layers() const {
  const std::string kOutput = ".y";
  std::vector<std::string> names;
  for (const auto& [key, tensor] : under("io.").tensors_) {
    if (key.ends_with(kOutput)) names.push_back(key.substr(0, key.size() - kOutput.size()));
  }
  if (names.empty()) throw std::runtime_error("no layers under " + name_ + "io.");
  return names;
}

}  // namespace lowtide

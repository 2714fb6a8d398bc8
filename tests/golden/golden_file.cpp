#include "tests/golden/golden_file.h"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "tests/golden/golden_dir.h"

namespace lowtide {

GoldenFile::GoldenFile(const std::filesystem::path& name) : name_(name.string()) {
  std::ifstream file(golden_dir() / name, std::ios::binary);
  if (!file) throw std::runtime_error("no golden file " + (golden_dir() / name).string());
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  for (const auto& item : torch::pickle_load(bytes).toGenericDict()) {
    tensors_[item.key().toStringRef()] = item.value().toTensor();
  }
}

const torch::Tensor& GoldenFile::operator[](const std::string& key) const {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) throw std::runtime_error(name_ + " has no tensor " + key);
  return found->second;
}

std::map<std::string, torch::Tensor> GoldenFile::under(const std::string& prefix) const {
  std::map<std::string, torch::Tensor> found;
  for (auto item = tensors_.lower_bound(prefix); item != tensors_.end() && item->first.starts_with(prefix);
       ++item) {
    found[item->first.substr(prefix.size())] = item->second;
  }
  return found;
}

testing::AssertionResult close_to(const torch::Tensor& actual, const torch::Tensor& expected,
                                  double tolerance) {
  if (!actual.defined()) return testing::AssertionFailure() << "no tensor";
  if (actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure() << "sizes " << actual.sizes() << ", expected " << expected.sizes();
  }
  const double difference =
      (actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>();
  const double magnitude = expected.to(torch::kDouble).abs().max().item<double>();
  if (difference <= tolerance * magnitude) return testing::AssertionSuccess();  // false for NaN
  return testing::AssertionFailure() << "differs by " << difference << " where the largest is " << magnitude
                                     << " (" << difference / magnitude << " relative, " << tolerance
                                     << " allowed)";
}

}  // namespace lowtide

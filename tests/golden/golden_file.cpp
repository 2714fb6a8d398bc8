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

}  // namespace lowtide

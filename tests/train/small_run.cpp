#include "tests/train/small_run.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "lowtide/base/random.h"

namespace lowtide {
namespace {

constexpr int kSide = 8;

void put_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

void write_part(const std::filesystem::path& folder, const std::string& part, std::uint32_t items) {
  std::string images, labels;
  put_big_endian(images, 0x803);
  for (const std::uint32_t size : {items, std::uint32_t{kSide}, std::uint32_t{kSide}})
    put_big_endian(images, size);
  put_big_endian(labels, 0x801);
  put_big_endian(labels, items);
  RandomStream random(7, RandomPurpose::kSplit, items);
  for (std::uint32_t i = 0; i < items; ++i) {
    const std::uint32_t label = random.below(10);
    labels.push_back(static_cast<char>(label));
    for (std::uint32_t pixel = 0; pixel < kSide * kSide; ++pixel) {
      const bool bright = pixel / 6 == label;
      images.push_back(static_cast<char>(random.below(100) + (bright ? 150 : 0)));
    }
  }
  std::ofstream(folder / (part + "-images-idx3-ubyte"), std::ios::binary) << images;
  std::ofstream(folder / (part + "-labels-idx1-ubyte"), std::ios::binary) << labels;
}

}  // namespace

void write_small_dataset(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write_part(folder, "train", 300);
  write_part(folder, "t10k", 60);
}

Recipe small_recipe(const std::filesystem::path& data) {
  Recipe recipe;
  recipe.data.format = "idx";
  recipe.data.dir = data.string();
  recipe.data.validation = 50;
  recipe.data.augment = "pad-crop";
  recipe.data.padding = 1;
  recipe.data.flip = true;
  recipe.model.name = "cifar-resnet8";
  recipe.precision.schedule = "CR";
  recipe.precision.bits = "3:8";
  recipe.precision.cycles = 4;
  recipe.training.steps = 40;
  recipe.training.batch = 20;
  recipe.training.lr = 0.05;
  recipe.running.log_every = 7;
  recipe.running.eval_every = 13;
  recipe.running.checkpoint_every = 6;
  return recipe;
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lowtide

#pragma once

// Files in the formats of the data sets, made by the tests.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/data/image.h"
#include "tests/io/scratch.h"

namespace lowtide {

void write_file(const std::filesystem::path& path, const std::string& bytes);  // makes its folder too
void write_gzip(const std::filesystem::path& path, const std::string& bytes);

std::string idx_images(int count, int height, int width,
                       std::uint8_t first_pixel = 0);  // pixel i is first + i
std::string idx_labels(const std::vector<std::uint8_t>& labels);

// A record of CIFAR: `labels` (one byte, or two), then constant planes of these values.
std::string cifar_record(const std::string& labels, std::uint8_t red, std::uint8_t green, std::uint8_t blue);

Image gradient_image(int height, int width, int channels);  // smooth, so that JPEG keeps it nearly
std::string encode_jpeg(const Image& image);  // 1 or 3 channels; 4: CMYK with Adobe's marker, inverted

struct PngOptions {
  int bit_depth = 8;
  bool interlaced = false;
};
std::string encode_png(const Image& image,
                       const PngOptions& options = {});  // 1: grey, 2: with alpha, 3: RGB, 4: RGBA
// A JPEG file with EXIF's orientation, told by a camera of either byte order.
std::string with_orientation(const std::string& jpeg, int orientation, bool little_endian = true);

struct WebpOptions {
  float quality = -1;  // lossless
};
std::string encode_webp(const Image& image, const WebpOptions& options = {});  // 3: RGB, 4: RGBA

std::string encode_palette_png(int height, int width, const std::vector<std::uint8_t>& indices,
                               const std::vector<std::uint8_t>& palette_rgb);

}  // namespace lowtide

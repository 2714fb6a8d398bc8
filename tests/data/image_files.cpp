#include "tests/data/image_files.h"

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>

namespace lowtide {

namespace fs = std::filesystem;

void write_file(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_gzip(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

namespace {

std::string idx_header(const std::vector<int>& dimensions) {
  std::string header = {0, 0, 8, static_cast<char>(dimensions.size())};
  for (const int dimension : dimensions) {
    for (int shift = 24; shift >= 0; shift -= 8) header.push_back(static_cast<char>(dimension >> shift));
  }
  return header;
}

}  // namespace

std::string idx_images(int count, int height, int width, std::uint8_t first_pixel) {
  std::string bytes = idx_header({count, height, width});
  for (int i = 0; i < count * height * width; ++i) bytes.push_back(static_cast<char>(first_pixel + i));
  return bytes;
}

std::string idx_labels(const std::vector<std::uint8_t>& labels) {
  return idx_header({static_cast<int>(labels.size())}) + std::string(labels.begin(), labels.end());
}

std::string cifar_record(const std::string& labels, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  std::string record = labels;
  for (const std::uint8_t value : {red, green, blue}) record.append(1024, static_cast<char>(value));
  return record;
}

Image gradient_image(int height, int width, int channels) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.pixels.push_back(static_cast<std::uint8_t>(130 * y / height + 40 * x / width + 40 * c));
      }
    }
  }
  return image;
}

std::string encode_jpeg(const Image& image) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.row(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return bytes;
}

std::string with_orientation(const std::string& jpeg, int orientation, bool little_endian) {
  const auto number = [&](int value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i)
      text.push_back(static_cast<char>(value >> 8 * (little_endian ? i : bytes - 1 - i)));
    return text;
  };
  // A directory of two entries: the camera's maker, and the orientation, a short in the first half of its value.
  const std::string tiff = std::string(little_endian ? "II" : "MM") + number(42, 2) + number(8, 4) +
                           number(2, 2) + number(0x010F, 2) + number(2, 2) + number(4, 4) + "abc" +
                           std::string(1, '\0') + number(0x0112, 2) + number(3, 2) + number(1, 4) +
                           number(orientation, 2) + number(0, 2) + number(0, 4);
  const std::string segment = std::string("Exif\0\0", 6) + tiff;
  std::string bytes = jpeg;
  const auto length = static_cast<char>(segment.size() + 2);
  return bytes.insert(2, std::string("\xFF\xE1\0", 3) + length + segment);
}

std::string encode_webp(const Image& image, const WebpOptions& options) {
  std::uint8_t* encoded = nullptr;
  const std::uint8_t* pixels = image.pixels.data();
  const int width = image.width, height = image.height, stride = width * image.channels;
  const std::size_t size =
      options.quality >= 0  ? WebPEncodeRGB(pixels, width, height, stride, options.quality, &encoded)
      : image.channels == 4 ? WebPEncodeLosslessRGBA(pixels, width, height, stride, &encoded)
                            : WebPEncodeLosslessRGB(pixels, width, height, stride, &encoded);
  std::string bytes(reinterpret_cast<char*>(encoded), size);
  WebPFree(encoded);
  return bytes;
}

namespace {

struct PngHeader {
  int height;
  int width;
  int bit_depth;
  int color_type;
  bool interlaced;
};

// `rows` hold the pixels as PNG has them: 16 bits with the high byte first.
std::string write_png(const PngHeader& header, const std::vector<png_bytep>& rows,
                      const std::vector<std::uint8_t>& palette) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp writer, png_bytep data, std::size_t count) {
        static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<char*>(data), count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(header.width), static_cast<png_uint_32>(header.height),
               header.bit_depth, header.color_type,
               header.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) {
    png_set_PLTE(png, info, reinterpret_cast<png_const_colorp>(palette.data()),
                 static_cast<int>(palette.size() / 3));
  }
  png_set_rows(png, info, const_cast<png_bytepp>(rows.data()));
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::vector<png_bytep> row_pointers(std::vector<std::uint8_t>& pixels, int height) {
  std::vector<png_bytep> rows;
  const std::size_t stride = pixels.size() / static_cast<std::size_t>(height);
  for (int y = 0; y < height; ++y) rows.push_back(pixels.data() + static_cast<std::size_t>(y) * stride);
  return rows;
}

}  // namespace

std::string encode_png(const Image& image, const PngOptions& options) {
  constexpr int kColorTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA};
  std::vector<std::uint8_t> pixels;
  for (const std::uint8_t value : image.pixels) {
    // v · 257 is the 16-bit value that scales back to v exactly.
    pixels.insert(pixels.end(), options.bit_depth == 16 ? 2 : 1, value);
  }
  return write_png(
      {image.height, image.width, options.bit_depth, kColorTypes[image.channels - 1], options.interlaced},
      row_pointers(pixels, image.height), {});
}

std::string encode_palette_png(int height, int width, const std::vector<std::uint8_t>& indices,
                               const std::vector<std::uint8_t>& palette_rgb) {
  std::vector<std::uint8_t> pixels = indices;
  return write_png({height, width, 8, PNG_COLOR_TYPE_PALETTE, false}, row_pointers(pixels, height),
                   palette_rgb);
}

}  // namespace lowtide

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/data/decode_formats.h"

namespace lowtide {
namespace {

// As with libjpeg: an error inside libpng comes back by a long jump to decode(), past frames with nothing to
// destroy.
class PngDecoder {
 public:
  PngDecoder(ByteSpan bytes, const std::string& name, const DecodeLimits& limits)
      : rest_(bytes), name_(name), limits_(limits) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    LOWTIDE_CHECK(png_ != nullptr, "libpng does not match its header");
    info_ = png_create_info_struct(png_);
    LOWTIDE_CHECK(info_ != nullptr, "libpng cannot allocate");
  }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  Image decode() {
    if (setjmp(escape_) != 0) throw UserError(fmt::format("{}: damaged PNG: {}", name_, message_.data()));
    read_header();
    image_ =
        new_rgb_image(png_get_image_height(png_, info_), png_get_image_width(png_, info_), name_, limits_);
    point_at_rows();
    png_read_image(png_, rows_.data());
    png_read_end(png_, nullptr);
    return std::move(image_);
  }

 private:
  static void on_error(png_structp png, png_const_charp message) {
    auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::strncpy(self.message_.data(), message, self.message_.size() - 1);
    std::longjmp(self.escape_, 1);
  }

  // About ancillary chunks (colour profiles, text): the pixels are whole.
  static void on_warning(png_structp, png_const_charp) {}

  static void on_read(png_structp png, png_bytep out, std::size_t count) {
    auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self.rest_.size()) png_error(png, "the file ends early");
    std::memcpy(out, self.rest_.data(), count);
    self.rest_ = self.rest_.subspan(count);
  }

  // Every kind of PNG becomes 8-bit RGB, without the gamma correction that viewers apply and training does
  // not.
  void read_header() {
    png_set_read_fn(png_, this, on_read);
    png_read_info(png_, info_);
    png_set_expand(png_);  // palettes, 1, 2 and 4 bits, tRNS
    png_set_scale_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
  }

  void point_at_rows() {
    png_read_update_info(png_, info_);
    const std::size_t row_bytes = static_cast<std::size_t>(image_.width) * 3;
    LOWTIDE_CHECK(png_get_rowbytes(png_, info_) == row_bytes, "a PNG row that is not RGB");
    for (int y = 0; y < image_.height; ++y) {
      rows_.push_back(image_.pixels.data() + static_cast<std::size_t>(y) * row_bytes);
    }
  }

  ByteSpan rest_;
  const std::string& name_;
  const DecodeLimits& limits_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf escape_{};
  std::array<char, 128> message_{};
  Image image_;
  std::vector<png_bytep> rows_;
};

}  // namespace

Image decode_png(ByteSpan bytes, const std::string& name, const DecodeLimits& limits) {
  return PngDecoder(bytes, name, limits).decode();
}

}  // namespace lowtide

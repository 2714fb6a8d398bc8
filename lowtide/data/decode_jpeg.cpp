#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/data/decode_formats.h"

namespace lowtide {
namespace {

// Real progressive files have some ten scans. A hostile one of a megabyte can have a hundred thousand, each
// of which passes over the whole image; libjpeg-turbo's own fuzzers stop at 500 too.
constexpr int kMaxScans = 500;

// libjpeg reports an error by a call that must not return, and an exception must not cross its C frames: a
// long jump leads back to decode(). No function between the two has anything to destroy; what must be freed
// lives here.
class JpegDecoder {
 public:
  JpegDecoder(const std::string& name, const DecodeLimits& limits) : name_(name), limits_(limits) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { self(info).fail(info); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !harmless(info->err->msg_code)) self(info).fail(info);
    };
    errors_.output_message = [](j_common_ptr) {};
    progress_.progress_monitor = [](j_common_ptr info) { self(info).check_scans(); };
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }

  Image decode(ByteSpan bytes) {
    if (setjmp(escape_) != 0) throw UserError(fmt::format("{}: damaged JPEG: {}", name_, message_.data()));
    start(bytes);
    image_ = new_rgb_image(info_.output_height, info_.output_width, name_, limits_);
    line_.resize(static_cast<std::size_t>(info_.output_width) *
                 static_cast<std::size_t>(info_.output_components));
    read_rows();
    return std::move(image_);
  }

 private:
  static JpegDecoder& self(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

  // Oddities that leave the pixels whole: padding between segments, version numbers. All other warnings (data
  // that ends early, codes that do not exist) mean that libjpeg made up a part of the picture.
  static bool harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  }

  [[noreturn]] void fail(j_common_ptr info) {
    errors_.format_message(info, message_.data());
    std::longjmp(escape_, 1);
  }

  void check_scans() {
    if (info_.input_scan_number <= kMaxScans) return;
    std::snprintf(message_.data(), message_.size(), "more than %d scans", kMaxScans);
    std::longjmp(escape_, 1);
  }

  void start(ByteSpan bytes) {
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const std::uint8_t*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&info_, TRUE);
    const bool four_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&info_);
  }

  void read_rows() {
    jpeg_start_decompress(&info_);
    const bool four_inks = info_.out_color_space == JCS_CMYK;
    while (info_.output_scanline < info_.output_height) {
      std::uint8_t* row = image_.pixels.data() + std::size_t{info_.output_scanline} * info_.output_width * 3;
      JSAMPROW target = four_inks ? line_.data() : row;
      jpeg_read_scanlines(&info_, &target, 1);
      if (four_inks) cmyk_to_rgb(row);
    }
    jpeg_finish_decompress(&info_);
  }

  // Paper reflects what neither its ink nor the black takes away. Adobe's files, told by their marker, store
  // the light that is left (255 = no ink) instead of the ink.
  void cmyk_to_rgb(std::uint8_t* rgb) const {
    const int flip = info_.saw_Adobe_marker ? 0 : 255;
    for (std::size_t x = 0; x < info_.output_width; ++x) {
      const std::uint8_t* ink = &line_[4 * x];
      const int black = ink[3] ^ flip;
      for (std::size_t c = 0; c < 3; ++c) {
        rgb[3 * x + c] = static_cast<std::uint8_t>(((ink[c] ^ flip) * black + 127) / 255);
      }
    }
  }

  const std::string& name_;
  const DecodeLimits& limits_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
  Image image_;
  std::vector<std::uint8_t> line_;  // one row of CMYK
};

}  // namespace

Image decode_jpeg(ByteSpan bytes, const std::string& name, const DecodeLimits& limits) {
  JpegDecoder decoder(name, limits);
  return decoder.decode(bytes);
}

}  // namespace lowtide

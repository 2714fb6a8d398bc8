#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lowtide {

// Eight bits a channel, rows from the top, channels interleaved (HWC): the order in which files give pixels
// and in which a channels-last batch wants them.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<std::uint8_t> pixels;

  const std::uint8_t* row(int y) const {
    return pixels.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(width * channels);
  }
};

}  // namespace lowtide

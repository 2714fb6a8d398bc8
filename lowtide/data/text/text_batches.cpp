#include "lowtide/data/text/text_batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/base/whole_number.h"

namespace lowtide {

TextBatches::TextBatches(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t length)
    : tokens_(tokens), batch_(batch), length_(length) {
  LOWTIDE_CHECK(batch >= 1 && length >= 1, "a window has a size");
  rows_ = static_cast<std::int64_t>(tokens.size()) / batch;
  if (rows_ < 2) {
    throw UserError(
        fmt::format("a text of {} tokens in {} columns; expected at least {}: choose a smaller batch",
                    tokens.size(), batch, 2 * batch));
  }
}

// The last row has no targets of its own.
std::int64_t TextBatches::windows_per_epoch() const { return (rows_ - 1 + length_ - 1) / length_; }

TextWindow TextBatches::next() {
  const std::int64_t first_row = position_++ % windows_per_epoch() * length_;
  TextWindow window;
  window.first = first_row == 0;
  window.length = std::min(length_, rows_ - 1 - first_row);
  window.inputs.reserve(static_cast<std::size_t>(window.length * batch_));
  window.targets.reserve(window.inputs.capacity());
  for (std::int64_t row = first_row; row < first_row + window.length; ++row) {
    for (std::int64_t column = 0; column < batch_; ++column) {
      const auto at = static_cast<std::size_t>(column * rows_ + row);
      window.inputs.push_back(tokens_[at]);
      window.targets.push_back(tokens_[at + 1]);
    }
  }
  return window;
}

Json TextBatches::state() const {
  return {{"tokens", tokens_.size()}, {"batch", batch_}, {"length", length_}, {"position", position_}};
}

void TextBatches::restore(const Json& state) {
  std::size_t tokens = 0;
  std::int64_t batch = 0, length = 0, position = 0;
  try {
    tokens = state.at("tokens").get<std::size_t>();
    batch = state.at("batch").get<std::int64_t>();
    length = state.at("length").get<std::int64_t>();
    position = state.at("position").get<std::int64_t>();
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("position in the text: {}; expected tokens, batch, length and position",
                                json_reason(error)));
  }
  if (tokens != tokens_.size() || batch != batch_ || length != length_ ||
      !is_whole_number(state.at("position"), 0, kMostCounted)) {
    throw UserError(
        fmt::format("position {} in a text of {} tokens, batch {}, length {}; expected {} tokens, batch {}, "
                    "length {}",
                    state.at("position").dump(), tokens, batch, length, tokens_.size(), batch_, length_));
  }
  position_ = position;
}

}  // namespace lowtide

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lowtide/base/json.h"

namespace lowtide {

// What one step of truncated back-propagation sees: `length` rows, in time, of `batch` columns each. The
// target of a token is the token that follows it.
struct TextWindow {
  std::int64_t length = 0;
  std::vector<std::int64_t> inputs;   // length × batch
  std::vector<std::int64_t> targets;  // length × batch
  bool first = false;                 // of its pass over the text: the hidden state starts anew
};

// An endless stream of windows over a text. The text is cut into `batch` columns of equal length, which are
// read side by side from top to bottom; tokens that do not fill the last row are left out. Window k lies in
// pass k / windows_per_epoch(); the last window of a pass is shorter where `length` does not divide the rows.
class TextBatches {
 public:
  // The tokens must outlive this. UserError for a text that gives less than one row and its targets.
  TextBatches(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t length);

  TextWindow next();

  std::int64_t rows() const { return rows_; }
  std::int64_t windows_per_epoch() const;
  std::int64_t position() const { return position_; }  // windows drawn so far
  void seek(std::int64_t position) { position_ = position; }

  Json state() const;
  void restore(const Json& state);  // UserError for the state of another text, batch or length

 private:
  std::span<const std::int32_t> tokens_;
  std::int64_t batch_;
  std::int64_t length_;
  std::int64_t rows_;
  std::int64_t position_ = 0;
};

}  // namespace lowtide

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/data/text/wordpiece.h"

namespace lowtide {

// Two sentences as BERT takes them: [CLS] a [SEP] b [SEP], the type 0 up to the first [SEP] and 1 after it.
struct EncodedPair {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> types;
};

inline constexpr std::int64_t kSpecialPieces = 3;  // of a pair: [CLS], [SEP], [SEP]

// At most `max_length` pieces in all: the longer sentence loses its last piece, of equals the second, until it
// fits. UserError for a length that leaves none of a sentence.
EncodedPair encode_pair(const WordPiece& pieces, std::vector<std::int32_t> a, std::vector<std::int32_t> b,
                        std::int64_t max_length);

// Pairs of various lengths in rows of the longest, filled with [PAD].
struct PairBatch {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;    // batch × length
  std::vector<std::int64_t> types;  // batch × length
  std::vector<std::int64_t> mask;   // batch × length: 1 where there is a piece, 0 for [PAD]
};
PairBatch pad_pairs(const WordPiece& pieces, std::span<const EncodedPair* const> pairs);

}  // namespace lowtide

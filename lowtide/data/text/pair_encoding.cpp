#include "lowtide/data/text/pair_encoding.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"

namespace lowtide {

EncodedPair encode_pair(const WordPiece& pieces, std::vector<std::int32_t> a, std::vector<std::int32_t> b,
                        std::int64_t max_length) {
  if (max_length < kSpecialPieces + 2) {
    throw UserError(fmt::format("pairs of at most {} pieces; expected {} or more: three of them are special",
                                max_length, kSpecialPieces + 2));
  }
  const auto room = static_cast<std::size_t>(max_length - kSpecialPieces);
  while (a.size() + b.size() > room) (a.size() > b.size() ? a : b).pop_back();
  EncodedPair pair;
  pair.ids.push_back(pieces.classifier());
  pair.ids.insert(pair.ids.end(), a.begin(), a.end());
  pair.ids.push_back(pieces.separator());
  pair.types.assign(pair.ids.size(), 0);
  pair.ids.insert(pair.ids.end(), b.begin(), b.end());
  pair.ids.push_back(pieces.separator());
  pair.types.resize(pair.ids.size(), 1);
  return pair;
}

PairBatch pad_pairs(const WordPiece& pieces, std::span<const EncodedPair* const> pairs) {
  std::size_t length = 0;
  for (const EncodedPair* pair : pairs) length = std::max(length, pair->ids.size());
  PairBatch batch;
  batch.batch = static_cast<std::int64_t>(pairs.size());
  batch.length = static_cast<std::int64_t>(length);
  batch.ids.assign(pairs.size() * length, pieces.padding());
  batch.types.assign(batch.ids.size(), 0);
  batch.mask.assign(batch.ids.size(), 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto row = static_cast<std::ptrdiff_t>(i * length);
    std::copy(pairs[i]->ids.begin(), pairs[i]->ids.end(), batch.ids.begin() + row);
    std::copy(pairs[i]->types.begin(), pairs[i]->types.end(), batch.types.begin() + row);
    std::fill_n(batch.mask.begin() + row, pairs[i]->ids.size(), 1);
  }
  return batch;
}

}  // namespace lowtide

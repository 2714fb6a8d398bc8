#include "lowtide/io/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <memory>

namespace lowtide {

std::string xxh128(std::span<const ByteSpan> pieces) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  LOWTIDE_CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK, "the state of a digest");
  for (const ByteSpan piece : pieces) XXH3_128bits_update(state.get(), piece.data(), piece.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace lowtide

#pragma once

#include <cstdint>

// The numbers that decide how the integer engine cuts its work. None changes a result. Where a figure of speed or size is
// given, it is Zen 4's; a machine that differs by a factor of two is served as well.

namespace lowtide::integer {

// Threads. To wake one takes some 10 µs, so each is to have about that much work.

// A core does some 200 products of bytes a nanosecond: below two million it is done before a second is awake.
inline constexpr std::int64_t kParallelMacs = 2'000'000;
// Tasks that a thread is woken for.
constexpr std::int64_t grain_for(std::int64_t macs, std::int64_t tasks) {
  return macs < kParallelMacs ? tasks : 1;
}

// So many tasks keep as many threads busy; fewer are cut smaller, but not to bands of fewer than four rows, whose margins
// would be read as often as the rows themselves.
inline constexpr std::int64_t kEnoughTasks = 8, kLeastBandRows = 4;

// A depthwise convolution writes about two floats a nanosecond (estimated, not measured).
inline constexpr std::int64_t kDepthwiseOutputsPerThread = 20'000;
// A core adds some 10 codes a nanosecond.
inline constexpr std::int64_t kSummedCodesPerThread = 100'000;
// A weight gradient's sum becomes a value in about a nanosecond (estimated, not measured).
inline constexpr std::int64_t kValuesPerThread = 10'000;
// Weights become fixed-point numbers, and columns are packed, at about one a nanosecond (estimated, not measured): 100 µs.
inline constexpr std::int64_t kFixedPointsPerThread = 100'000, kPackedBytesPerThread = 100'000;
// Winograd's transform of sixteen output channels' weights takes some 10 µs. For an input gradient they are transformed in
// pairs.
inline constexpr std::int64_t kTransformedLanesPerThread = 16, kTransformedPairsPerThread = 8;

// Caches. The second-level cache of a core has 1 MiB (Sapphire Rapids: 2 MiB), the first-level one 32 KiB.

// A task's packed operands, which stay in the second-level cache beside weights and results.
inline constexpr std::int64_t kPackedBytes = (1 << 20) / 4;
// Those of a direct weight gradient, whose sums need room too. But each task adds all its sums to the total, through memory:
// it is to have some thousand terms to each.
inline constexpr std::int64_t kGradientPackedBytes = (1 << 20) / 8, kGradientTerms = 1024;
// Codes that are summed at once: half of a first-level cache, while their channels are gone through.
inline constexpr std::int64_t kSummedCodes = 16 * 1024;
// Pixels of several rows that a matrix unit sums as one row: with four vectors of lanes their sums are 32 KiB.
inline constexpr std::int64_t kJoinedPixels = 128;
// Rows of a matrix that are packed together: with 1024 terms, 32 KiB.
inline constexpr std::int64_t kMatrixTileRows = 32;

// Winograd's transform.

// Tiles that are transformed together. With 64 channels their windows are 74 KiB, their sums 147 KiB and the weights 295
// KiB. A row of tiles is not cut, however wide the image.
inline constexpr std::int64_t kWinogradTiles = 16;
// The same for a weight gradient, which sums over the tiles: both operands of 64 channels are 590 KiB.
inline constexpr std::int64_t kWinogradGradientTiles = 64;
// Output channels of a weight gradient that are summed together: their sums with 64 inputs at every point are 147 KiB.
inline constexpr std::int64_t kWinogradGradientOutputs = 16;

// What a convolution must have to be worth transforming, as measured.
struct WinogradWorth {
  std::int64_t channels;           // both numbers of channels are multiples of this
  std::int64_t tiles_per_channel;  // weights are transformed once, or sums transformed back, for all tiles
  std::int64_t images;             // where threads share out whole images
};
inline constexpr WinogradWorth kOutputsWorth{.channels = 32, .tiles_per_channel = 4, .images = 8};
inline constexpr WinogradWorth kInputGradientsWorth{.channels = 32, .tiles_per_channel = 4, .images = 8};
inline constexpr WinogradWorth kWeightGradientsWorth{.channels = 16, .tiles_per_channel = 1, .images = 1};

// A core does 200 products of bytes in the time that it takes to fetch four floats from memory: up to eight quads an
// element, an output is computed again rather than kept for the backward pass.
inline constexpr std::int64_t kRecomputedQuads = 8;

}  // namespace lowtide::integer

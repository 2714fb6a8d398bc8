#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lowtide/engine/integer/tiles_impl.h"

// AMX: eight tile registers of sixteen rows of 64 bytes each. One instruction multiplies sixteen rows of sixteen quads by
// sixteen quads of sixteen lanes and adds the 256 sums to a tile, in sixteen cycles. Written as assembly because GCC 12's
// intrinsics take registers as bare tokens, and tell the compiler nothing of the memory that they read.

namespace lowtide::integer {
namespace {

constexpr int kTileRows = 16, kTileQuads = 16;

// Registers 0 to 3 are sums. Of both operands there is one of sixteen quads, and one of what is left of a sum after those.
constexpr int kSumTiles = 4;
struct Operands {
  int left, right;
};
constexpr Operands kWhole{4, 6}, kRest{5, 7};

template <int kTile>
void load(const void* from, std::int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(kTile) : "memory");
}
template <int kTile>
void store(void* to, std::int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step), "i"(kTile) : "memory");
}
template <int kTile>
void clear() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

enum class Signed { kLeft, kRight };

template <Signed kSigned, int kSum, Operands kOf>
void multiply() {
  if constexpr (kSigned == Signed::kLeft) {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kOf.left), "i"(kOf.right));
  } else {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kOf.left), "i"(kOf.right));
  }
}

// How much of the registers is used: so many rows, and of kRest so many quads.
struct Shapes {
  int rows = 0, rest = 0;
  bool operator==(const Shapes&) const = default;
};

thread_local Shapes set_now;

// Setting them takes some 60 ns, and what follows waits for it: a thread does so only when they change.
void set_shapes(const Shapes& shapes) {
  if (set_now == shapes) return;
  set_now = shapes;
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } config;
  const auto shape = [&](int tile, int rows, int quads) {
    config.rows[tile] = static_cast<std::uint8_t>(rows);
    config.row_bytes[tile] = static_cast<std::uint16_t>(quads * kQuad);
  };
  for (int sum = 0; sum < kSumTiles; ++sum) shape(sum, shapes.rows, kLanes);
  shape(kWhole.left, shapes.rows, kTileQuads);
  shape(kWhole.right, kTileQuads, kLanes);
  if (shapes.rest > 0) {
    shape(kRest.left, shapes.rows, shapes.rest);
    shape(kRest.right, shapes.rest, kLanes);
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
}

void release() {
  if (set_now == Shapes()) return;
  set_now = {};
  asm volatile("tilerelease");
}

// Calls work with 0, 1, … kCount - 1 as constants.
template <int kCount, typename Work>
[[gnu::always_inline]] inline void for_each(const Work& work) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (work(std::integral_constant<int, kIndex>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

template <Signed kSigned, int kSums, Operands kOf, typename Right>
[[gnu::always_inline]] inline void add_tiles(const void* left, std::int64_t left_step, const Right& right,
                                             std::int64_t right_step) {
  load<kOf.left>(left, left_step);
  for_each<kSums>([&](auto i) {
    load<kOf.right>(right(i), right_step);
    multiply<kSigned, i, kOf>();
  });
}

// Adds to each sum i the products of the left operand's rows of quads and the lanes that begin at right(i), where a quad's
// stand `right_step` bytes after those of the one before.
template <Signed kSigned, int kSums, typename Right>
[[gnu::always_inline]] inline void add_products(const void* left, std::int64_t left_step, const Right& right,
                                                std::int64_t right_step, std::int64_t quads) {
  const auto* rows = static_cast<const std::uint8_t*>(left);
  std::int64_t quad = 0;
  const auto from_here = [&](auto i) { return right(i) + quad * right_step; };
  for (; quad + kTileQuads <= quads; quad += kTileQuads) {
    add_tiles<kSigned, kSums, kWhole>(rows + quad * kQuad, left_step, from_here, right_step);
  }
  if (quad < quads) add_tiles<kSigned, kSums, kRest>(rows + quad * kQuad, left_step, from_here, right_step);
}

// Sixteen pixels, or as many as a row has.
template <int kVectors>
void dot_pixels(const DotRow& row, std::int64_t first) {
  for_each<kVectors>([](auto v) { clear<v>(); });
  constexpr std::int64_t kStep = kVectors * kVectorBytes;
  const std::int64_t quads = row.run * row.quads;
  const std::uint8_t* weight = row.weight;
  for (int tap = 0; tap < row.taps; tap += row.run, weight += quads * kStep) {
    add_products<Signed::kLeft, kVectors>(
        row.input + row.tap[tap] + first * row.layout.pixel_step, row.layout.pixel_step,
        [&](auto v) { return weight + v * kVectorBytes; }, kStep, quads);
  }
  std::int32_t* sum = row.sum + first * kVectors * kLanes;
  for_each<kVectors>([&](auto v) { store<v>(sum + v * kLanes, kStep); });
}

template <int kVectors>
void dot_row_of(const DotRow& row) {
  const std::int64_t at_once = std::min<std::int64_t>(kTileRows, row.pixels);
  set_shapes({static_cast<int>(at_once), static_cast<int>(row.run * row.quads % kTileQuads)});
  for (std::int64_t pixel = 0; pixel < row.pixels; pixel += at_once) {
    // The last ones begin earlier rather than be fewer: some are computed twice.
    const std::int64_t first = std::min(pixel, row.pixels - at_once);
    fetch_pixels(row.prefetch, first, at_once);
    dot_pixels<kVectors>(row, first);
  }
}

void dot_row(const DotRow& row, int vectors) {
  if (vectors == 1) return dot_row_of<1>(row);
  if (vectors == 2) return dot_row_of<2>(row);
  if (vectors == 3) return dot_row_of<3>(row);
  dot_row_of<4>(row);
}

template <int kStreams>
void plane_streams(const PlaneTile& tile) {
  constexpr std::int64_t kSumStep = kLanes * sizeof(std::int32_t);
  for_each<kStreams>([&](auto s) { load<s>(tile.sum + s * kTileRows * kLanes, kSumStep); });
  for (std::int64_t item = 0; item < tile.items; ++item) {
    add_products<Signed::kRight, kStreams>(
        tile.planes + item * tile.planes_item, tile.plane_step,
        [&](auto s) { return tile.stream[s] + item * tile.stream_item; }, tile.stream_step, tile.quads);
  }
  for_each<kStreams>([&](auto s) { store<s>(tile.sum + s * kTileRows * kLanes, kSumStep); });
}

void plane_tile(const PlaneTile& tile) {
  set_shapes({tile.rows, static_cast<int>(tile.quads % kTileQuads)});
  if (tile.streams == 1) return plane_streams<1>(tile);
  if (tile.streams == 2) return plane_streams<2>(tile);
  if (tile.streams == 3) return plane_streams<3>(tile);
  plane_streams<4>(tile);
}

// Sixteen bytes of each of four pixels; zeros from `count` on.
__m512i four_pixels(const std::int8_t* from, std::int64_t step, std::int64_t count) {
  const auto pixel = [&](std::int64_t i) {
    return i < count ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * step)) : __m128i{};
  };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(pixel(0)), pixel(1), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(pixel(2)), pixel(3), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Four sixteens of bytes become sixteen fours.
alignas(64) constexpr std::array<std::uint8_t, 64> kInterleaved = [] {
  std::array<std::uint8_t, 64> index{};
  for (std::size_t i = 0; i < 64; ++i) index[i] = static_cast<std::uint8_t>(i % 4 * 16 + i / 4);
  return index;
}();

void pack_lanes(const LaneRow& row) {
  const __m512i interleaved = _mm512_load_si512(kInterleaved.data()), ones = _mm512_set1_epi8(1);
  const std::int64_t whole = row.pixels / kQuad * kQuad, quad_bytes = row.vectors * kVectorBytes;
  for (std::int64_t vector = 0; vector < row.vectors; ++vector) {
    const std::int8_t* from = row.from + vector * kLanes;
    std::int8_t* to = row.to + vector * kVectorBytes;
    __m512i sum = _mm512_setzero_si512();
    const auto put = [&](__m512i pixels) {
      const __m512i lanes = _mm512_permutexvar_epi8(interleaved, pixels);
      _mm512_store_si512(to, lanes);
      sum = _mm512_dpbusd_epi32(sum, ones, lanes);
      to += quad_bytes;
    };
    for (std::int64_t i = 0; i < whole; i += kQuad) {
      const std::int8_t* four = from + i * row.step;
      put(row.step == kLanes ? _mm512_loadu_si512(four) : four_pixels(four, row.step, kQuad));
    }
    if (whole < row.pixels) put(four_pixels(from + whole * row.step, row.step, row.pixels - whole));
    _mm512_storeu_si512(row.sum + vector * kLanes, sum);
  }
}

// Σ of each four neighbours, of four vectors one after the other.
__m512i sums_of_fours(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  // Element 4 i + k is the sum of a, b, c or d's (k) fours i.
  const __m512i in_order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  return _mm512_permutexvar_epi32(in_order, abcd);
}

// Sixteen pixels of four quads each, or of more, four after four.
void sum_sixteen(const std::int8_t* x, std::int64_t quads, std::int64_t step, std::int32_t* sum) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i part[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i, x += 4 * step) {
    part[i] = _mm512_setzero_si512();
    for (std::int64_t quad = 0; quad < quads; quad += kQuad) {
      part[i] = _mm512_dpbusd_epi32(part[i], ones, four_pixels(x + quad * kQuad, step, 4));
    }
  }
  _mm512_storeu_si512(sum, sums_of_fours(part[0], part[1], part[2], part[3]));
}

std::int32_t sum_one(const std::int8_t* x, std::int64_t quads) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i total = _mm512_setzero_si512();
  for (std::int64_t quad = 0; quad < quads; quad += kLanes) {
    const std::int64_t left = quads - quad;
    const __mmask16 mask = left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    total = _mm512_dpbusd_epi32(total, ones, _mm512_maskz_loadu_epi32(mask, x + quad * kQuad));
  }
  return _mm512_reduce_add_epi32(total);
}

void channel_sums(const std::int8_t* input, std::int64_t quads, const PixelLayout& layout,
                  std::int64_t pixels, std::int32_t* sum) {
  std::int64_t pixel = 0;
  if (quads % kQuad == 0) {
    for (; pixel + kLanes <= pixels; pixel += kLanes) {
      sum_sixteen(input + pixel * layout.pixel_step, quads, layout.pixel_step, sum + pixel);
    }
  } else if (quads == 1) {
    for (; pixel + kLanes <= pixels; pixel += kLanes) {
      const __m512i sixteen = _mm512_loadu_si512(input + pixel * kQuad);
      _mm512_storeu_si512(sum + pixel,
                          _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), sixteen));
    }
  }
  for (; pixel < pixels; ++pixel) sum[pixel] = sum_one(input + pixel * layout.pixel_step, quads);
}

}  // namespace

// Linux lets a process use the tiles when it has asked.
bool may_use_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kTiles = 1u << 24, kBytes = 1u << 25;  // AMX-TILE, AMX-INT8
  if (!__builtin_cpu_supports("avx512vbmi") || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0)
    return false;
  if ((edx & kTiles) == 0 || (edx & kBytes) == 0) return false;
  // ARCH_REQ_XCOMP_PERM, of Linux 5.16, and XFEATURE_XTILEDATA.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

TileKernels with_amx(TileKernels others) {
  others.set = InstructionSet::kAmx;
  others.dot_row = dot_row;
  others.channel_sums = channel_sums;
  others.plane_tile = plane_tile;
  others.pack_lanes = pack_lanes;
  others.release = release;
  return others;
}

}  // namespace lowtide::integer

#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {

extern const TileKernels kGenericTiles;
#if defined(LOWTIDE_X86)
extern const TileKernels kAvx2Tiles;
extern const TileKernels kVnniTiles;
#endif

std::string instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kVnni:
      return "avx512-vnni";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kGeneric:
      break;
  }
  return "generic";
}

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
#if defined(LOWTIDE_X86)
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    sets.push_back(InstructionSet::kVnni);
  }
  if (__builtin_cpu_supports("avx2")) sets.push_back(InstructionSet::kAvx2);
#endif
  sets.push_back(InstructionSet::kGeneric);
  return sets;
}

const TileKernels& tile_kernels(InstructionSet set) {
  switch (set) {
#if defined(LOWTIDE_X86)
    case InstructionSet::kVnni:
      return kVnniTiles;
    case InstructionSet::kAvx2:
      return kAvx2Tiles;
#endif
    default:
      return kGenericTiles;
  }
}

}  // namespace lowtide::integer

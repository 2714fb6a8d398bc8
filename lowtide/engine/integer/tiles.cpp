#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {

extern const TileKernels kGenericTiles;
#if defined(LOWTIDE_X86)
extern const TileKernels kAvx2Tiles;
extern const TileKernels kVnniTiles;
bool may_use_amx();
TileKernels with_amx(TileKernels others);
#endif
TileKernels with_plain_matrix(TileKernels others);

std::string instruction_set_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAmx:
      return "amx";
    case InstructionSet::kVnni:
      return "avx512-vnni";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kGenericMatrix:
      return "generic-matrix";
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
    if (may_use_amx()) sets.push_back(InstructionSet::kAmx);
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
    case InstructionSet::kAmx: {
      static const TileKernels amx = with_amx(kVnniTiles);
      return amx;
    }
    case InstructionSet::kVnni:
      return kVnniTiles;
    case InstructionSet::kAvx2:
      return kAvx2Tiles;
#endif
    case InstructionSet::kGenericMatrix: {
      static const TileKernels matrix = with_plain_matrix(kGenericTiles);
      return matrix;
    }
    default:
      return kGenericTiles;
  }
}

}  // namespace lowtide::integer

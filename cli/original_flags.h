#pragma once

#include <string>
#include <vector>

namespace lowtide {

// Translates the flags of the original cyclic-precision program to ours, others are left as they are:
//   --is_cyclic_precision                        --schedule CR
//   --cyclic_num_bits_schedule 3 8               --bits 3:8
//   --cyclic_num_grad_bits_schedule 8 8          --grad-bits 8, or 6:8 where the two differ
//   --num_cyclic_period 32                       --cycles 32
//   --num_bits 8, --num_grad_bits 8              --schedule static --bits 8, --grad-bits 8; the original
//   looked at
//                                                them without --is_cyclic_precision only, and so do we
//   --iters 64000, --batch_size 128, --weight_decay 1e-4, --data_dir, --save_folder   --steps, --batch, ...
std::vector<std::string> translate_original_flags(const std::vector<std::string>& arguments);

}  // namespace lowtide

#pragma once

// What the program checks and times.

namespace lowtide::cuda::bench {

void check_products();
void check_codes();
void check_attention();
void check_norms();
void check_rows();
void check_aggregation();

// To the list of timings.
void time_products();
void time_passes();

}  // namespace lowtide::cuda::bench

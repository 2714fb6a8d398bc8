#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"
#include "lowtide/schedule/schedule.h"

// A line either is a UserError or a schedule that prints as a line which is the same schedule, and that runs.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try {
    const ScheduleSpec spec = parse_schedule(deepened(data, size));
    LOWTIDE_CHECK(parse_schedule(to_string(spec)) == spec, to_string(spec));
    constexpr std::int64_t kSteps = 1000;
    const std::vector<LayerSize> layers{{1000, true}, {30, true}, {5, false}};
    const auto schedule = make_schedule(
        spec, kSteps, [](std::int64_t step) { return 1.0 / static_cast<double>(step + 1); }, layers);
    const Bits highest = spec.highest();
    for (std::int64_t step = delay_steps(spec, kSteps); step < kSteps - tail_steps(spec, kSteps); ++step) {
      if (schedule->probe_after(step)) schedule->observe_probe({1.0, 1.0 / static_cast<double>(step % 7)});
      if (schedule->looks_at(step)) schedule->observe_layers({1.0, 1.0 / static_cast<double>(step % 7), 0.0});
      if (step % 37 != 0) continue;
      for (const int of_layer : schedule->layers_at(step))
        LOWTIDE_CHECK(of_layer >= spec.bits.low && of_layer <= spec.bits.high, to_string(spec));
      const Bits bits = schedule->at(step);
      LOWTIDE_CHECK(bits.forward <= highest.forward && bits.backward <= highest.backward, to_string(spec));
      LOWTIDE_CHECK(is_fp32(highest) || (bits.forward >= (spec.budget ? kFewestBits : spec.bits.low) &&
                                         bits.backward >= spec.grad.low),
                    to_string(spec));
    }
  } catch (const UserError&) {
  }
  return 0;
}

#include "lowtide/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <utility>

#include "lowtide/io/standard_output.h"

namespace lowtide {
namespace {

std::string bits_text(Bits bits) {
  if (is_fp32(bits)) return "fp32";
  return bits.backward == 0 ? fmt::format("{}/fp32", bits.forward)
                            : fmt::format("{}/{}", bits.forward, bits.backward);
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto s = static_cast<std::int64_t>(std::lround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

Progress::Progress(std::int64_t total_steps, const Metric& metric, std::string items)
    : total_(total_steps), metric_(metric), items_(std::move(items)), terminal_(isatty(STDOUT_FILENO) == 1) {}

std::string Progress::bar(std::int64_t step) const {
  constexpr int kWidth = 16;
  const auto full = static_cast<std::size_t>(step * kWidth / total_);
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(kWidth - full, '.'));
}

void Progress::update(const ProgressLine& line) {
  const double left = static_cast<double>(total_ - line.step) * line.seconds_per_step;
  const std::string metric =
      line.metric ? fmt::format("  {} {:>7}", metric_.name, metric_text(metric_, *line.metric)) : "";
  const std::string text = fmt::format(
      "step {:>{}}/{}  loss {:.4f}{}  bits {:>4}  lr {:.3g}  {:.0f} {}/s  cost {:.4f}  left {}", line.step,
      fmt::formatted_size("{}", total_), total_, line.loss, metric, bits_text(line.bits), line.rate,
      line.items_per_second, items_, line.relative_cost, duration_text(left));
  if (terminal_) {
    print_or_drop(fmt::format("\r{} {}\x1b[K", bar(line.step), text));
    drawn_ = true;
  } else {
    print_or_drop(text + "\n");
  }
}

void Progress::note(const std::string& text) {
  finish();
  print_or_drop(text + "\n");
}

void Progress::finish() {
  if (drawn_) print_or_drop("\n");
  drawn_ = false;
}

}  // namespace lowtide

#include "lowtide/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <utility>

#include "lowtide/io/standard_output.h"
#include "lowtide/io/terminal.h"

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

Progress::Progress(std::int64_t total_steps, const Metric& metric, std::string items, bool shown)
    : total_(total_steps), metric_(metric), items_(std::move(items)), shown_(shown) {
  const bool terminal = terminal_columns(STDOUT_FILENO) > 0;
  interval_ = std::chrono::seconds(terminal ? 1 : 10);
  next_ = terminal ? Clock::now() : Clock::now() + interval_;
}

std::string Progress::bar(std::int64_t step) const {
  constexpr int kWidth = 16;
  const auto full = static_cast<std::size_t>(step * kWidth / total_);
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(kWidth - full, '.'));
}

std::string Progress::text_of(const ProgressLine& line) const {
  const double left = static_cast<double>(total_ - line.step) * seconds_per_step_;
  const std::string metric =
      line.metric ? fmt::format("  {} {:>7}", metric_.name, metric_text(metric_, *line.metric)) : "";
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}{}  bits {:>4}  lr {:.3g}  {:.0f} {}/s  cost {:.4f}  left {}", line.step,
      fmt::formatted_size("{}", total_), total_, line.loss, metric, bits_text(line.bits), line.rate,
      line.items_per_second, items_, line.relative_cost, duration_text(left));
}

// The last column stays free: a terminal whose last column is written may begin a new line. Without room for both the figures
// come before the bar.
void Progress::draw(const ProgressLine& line, int columns) {
  const std::string text = text_of(line), with_bar = bar(line.step) + " " + text;
  const bool fits = cut_to_columns(with_bar, columns - 1) == with_bar;
  print_or_drop(fmt::format("\r{}\x1b[K", fits ? with_bar : cut_to_columns(text, columns - 1)));
  drawn_ = true;
}

void Progress::update(const ProgressLine& line, Clock::time_point now) {
  if (!shown_) return;
  constexpr double kWeight = 0.2;  // of the last interval: what is left is not to jump
  seconds_per_step_ = seconds_per_step_ == 0
                          ? line.seconds_per_step
                          : (1 - kWeight) * seconds_per_step_ + kWeight * line.seconds_per_step;
  if (const int columns = terminal_columns(STDOUT_FILENO); columns > 0) {
    draw(line, columns);
  } else {
    print_or_drop(text_of(line) + "\n");
  }
  next_ = now + interval_;
}

void Progress::note(const std::string& text) {
  if (!shown_) return;
  finish();
  print_or_drop(text + "\n");
}

void Progress::finish() {
  if (drawn_) print_or_drop("\n");
  drawn_ = false;
}

}  // namespace lowtide

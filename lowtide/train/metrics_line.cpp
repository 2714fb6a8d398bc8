#include "lowtide/train/metrics_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lowtide/base/error.h"
#include "lowtide/io/jsonl.h"

namespace lowtide {

Json to_json(const TrainingLine& line) {
  Json json{{kStepKey, line.step},
            {"loss", line.loss},
            {"lr", line.rate},
            {kBitsKey, line.bits.forward},
            {"grad_bits", line.bits.backward},
            {"relative_cost", line.relative_cost},
            {"gbitops_paper", line.gbitops_paper},
            {"gbitops_actual", line.gbitops_actual},
            {"items_per_s", line.items_per_second},
            {"seconds", line.seconds}};
  if (line.metric) json[line.metric_name] = *line.metric;
  return json;
}

Json to_json(const EvaluationLine& line) {
  Json json{{kStepKey, line.step},           {kSplitKey, split_name(line.split)},
            {line.metric_name, line.metric}, {"loss", line.loss},
            {kBitsKey, line.bits},           {"seconds", line.seconds}};
  json.update(line.also);
  if (line.is_final) json["final"] = true;
  return json;
}

Json to_json(const LayersLine& line) {
  Json json{{kStepKey, line.step}, {kSplitKey, kLayersSplit}, {"took", line.took}, {"seconds", line.seconds}};
  if (line.step_took) json["step_took"] = *line.step_took;
  for (const LayerFigures& of : line.layers) {
    const auto add = [&](const char* name, const std::optional<double>& value) {
      if (value) json[fmt::format("{}.{}", of.layer, name)] = *value;
    };
    add("weight_snr", of.weight_snr);
    add("activation_snr", of.activation_snr);
    add("error_snr", of.error_snr);
    add("clipped", of.clipped);
    add("sensitivity", of.sensitivity);
    if (of.bits) json[fmt::format("{}.{}", of.layer, kLayerBitsKey)] = *of.bits;
  }
  return json;
}

Json to_json(const ProbeLine& line) {
  return {{kStepKey, line.step},
          {kSplitKey, kProbeSplit},
          {"coarse_bits", line.coarse_bits},
          {"coarse_loss", line.coarse_loss},
          {"fine_loss", line.fine_loss},
          {kBitsKey, line.bits},
          {"took", line.took},
          {"seconds", line.seconds}};
}

bool is_training_key(const std::string& key) {
  static const Json keys = to_json(TrainingLine{});
  return keys.contains(key);
}

std::optional<double> LoggedLine::figure(const std::string& key) const {
  const auto found = values.find(key);
  return found != values.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

LoggedLine logged_line(const Json& json, const std::string& name) {
  LoggedLine line{.values = json};
  if (const auto step = json.find(kStepKey); step != json.end()) {
    if (!step->is_number_integer())
      throw UserError(fmt::format("{}: a line's step is {}, not a whole number; the file is damaged", name,
                                  step->dump()));
    line.step = step->get<std::int64_t>();
  }
  if (const auto split = json.find(kSplitKey); split != json.end() && split->is_string()) line.split = *split;
  line.seconds = line.figure("seconds");
  line.is_final = json.contains("final");
  return line;
}

std::vector<LoggedLine> read_logged_lines(const std::filesystem::path& file) {
  std::vector<LoggedLine> lines;
  for (const Json& line : read_jsonl(file).lines) lines.push_back(logged_line(line, file.string()));
  return lines;
}

std::optional<LoggedLine> last_logged_line(const std::filesystem::path& file) {
  constexpr off_t kTail = 65536;  // a hundred lines and more
  const FileDescriptor opened = open_for_reading(file);
  const off_t size = ::lseek(opened.number(), 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - kTail);
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, size - from)), '\0');
  const ssize_t got = ::pread(opened.number(), text.data(), text.size(), from);
  if (size < 0 || got < 0) throw cannot_read(file, errno);
  text.resize(static_cast<std::size_t>(got));
  const auto end = text.rfind('\n');
  if (end == std::string::npos) return std::nullopt;
  const auto before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const auto begin = before == std::string::npos ? 0 : before + 1;
  const Jsonl last = parse_jsonl(text.substr(begin, end + 1 - begin), file.string());
  return logged_line(last.lines.at(0), file.string());
}

}  // namespace lowtide

#include "lowtide/train/checkpoint_state.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/io/json_check.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

Json parse_state(const SafetensorsFile& file, const std::string& name) {
  const auto text = file.metadata().find(kCheckpointStateKey);
  if (text == file.metadata().end()) {
    throw UserError(
        fmt::format("{}: not a checkpoint of lowtide (its header has no '{}')", name, kCheckpointStateKey));
  }
  Json state = parse_json(text->second, name + ": the state in its header", "the file is damaged");
  if (!state.is_object())
    throw UserError(fmt::format("{}: the state in its header is not an object; the file is damaged", name));
  return state;
}

}  // namespace

Json checkpoint_state(const SafetensorsFile& file, const std::filesystem::path& path) {
  const std::string name = path.string();
  Json state = parse_state(file, name);
  const bool sealed = whole_number(state, "format", 1, kCheckpointFormat, name) > kUnsealedFormat;
  if (sealed) check_sealed_header(file.content(), name);
  const std::int64_t total = whole_number(state, "total_steps", 1, kMostCounted, name);
  const std::int64_t step = whole_number(state, "step", 0, total, name);
  const auto named = step_of_checkpoint(path);
  if (named && *named != step)
    throw UserError(fmt::format("{}: step is {}; expected {} as in the file's name: was it renamed?", name,
                                step, *named));
  return state;
}

Json read_checkpoint_state(const std::filesystem::path& path) {
  return checkpoint_state(SafetensorsFile(path), path);
}

}  // namespace lowtide

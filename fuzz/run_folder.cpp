#include "lowtide/train/run_folder.h"

#include <stdlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"
#include "lowtide/io/safetensors.h"
#include "lowtide/report/comparison.h"
#include "lowtide/report/run_data.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// A folder of this process, removed at its end.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "lowtide-fuzz-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
    fs::create_directory(RunPaths{path_}.checkpoints());
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

template <typename Call>
void attempt(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
}

}  // namespace
}  // namespace lowtide

// Zero bytes part run.json, result.json, metrics.jsonl, landscape.json and the state in a checkpoint. Whatever they hold,
// the folder is read, or is a UserError of one line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  static const Scratch scratch;
  const std::string input = deepened(data, size);
  std::array<std::string_view, 5> parts;
  std::string_view rest(input);
  for (std::string_view& part : parts) {
    part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  const RunPaths paths{scratch.path()};
  write(paths.run(), parts[0]);
  write(paths.result(), parts[1]);
  write(paths.metrics(), parts[2]);
  write(paths.folder / "landscape.json", parts[3]);
  try {
    write(paths.checkpoint(1), encode_safetensors({}, {{"lowtide", std::string(parts[4])}}).header);
  } catch (const UserError&) {  // not UTF-8
  }
  attempt([&] {
    const Json run = read_run(paths.folder);
    ScheduleRuns schedules;
    schedules.add(run);
    describe_lines(read_metrics(paths.metrics()), run.at("result"));
  });
  attempt([&] { comparison_text({read_run_summary(paths.folder)}); });
  attempt([&] { check(read_run_recipe(paths)); });
  return 0;
}

#pragma once

#include <filesystem>

#include "lowtide/base/json.h"
#include "lowtide/io/safetensors.h"

namespace lowtide {

// What a checkpoint holds beside tensors: JSON in the metadata of its header, under "lowtide". Needs no torch.

constexpr int kCheckpointFormat = 2;
constexpr int kUnsealedFormat = 1;  // the one before, without digests: read, no longer written
constexpr const char* kCheckpointStateKey = "lowtide";

// Checked: the format, the seal of the header, the step against the total and, in a file of a run folder, its name.
// UserError where one of them is not as it was written.
Json checkpoint_state(const SafetensorsFile& file, const std::filesystem::path& path);
Json read_checkpoint_state(const std::filesystem::path& path);

}  // namespace lowtide

#pragma once

#include <nlohmann/json.hpp>

namespace lowtide {

// Keys keep the order in which they were written: files read as they were meant.
using Json = nlohmann::ordered_json;

}  // namespace lowtide

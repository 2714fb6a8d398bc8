#pragma once

#include <exception>
#include <optional>
#include <string>

namespace lowtide {

// Whether an error is the machine's: memory that ran out, a GPU that is missing, too old or failing, a driver. Then in one line what
// it is and what to do; nothing where it is a user's mistake or ours. libtorch tells most of it in its messages alone, which
// differ between its versions.
std::optional<std::string> machine_error(const std::exception& error);

}  // namespace lowtide

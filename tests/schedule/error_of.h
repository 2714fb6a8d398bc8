#pragma once

#include <string>

#include "lowtide/base/error.h"

namespace lowtide {

// The message of the UserError that the action throws; nothing if it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace lowtide

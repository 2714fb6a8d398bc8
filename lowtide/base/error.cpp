#include "lowtide/base/error.h"

#include <fmt/format.h>

namespace lowtide {

void invariant_failed(const char* condition, const char* file, int line, const std::string& what) {
  throw std::logic_error(fmt::format("{}:{}: {} (this should hold: {})", file, line, what, condition));
}

}  // namespace lowtide

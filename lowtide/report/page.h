#pragma once

#include <string_view>

namespace lowtide {

// The report's page without data: one HTML document with its scripts, styles and font inside, made from web/
// when the program is built. UserError where it was built without Node.
//
// The index of runs belongs between `head` and `script`, their lines between `script` and `tail`: so the page is
// drawn while the lines, which may be many, are still being read.
struct Page {
  std::string_view head, script, tail;
};
Page report_page();

// The Content-Security-Policy that the page names: its own script, styles and font, and requests to where it came from.
std::string_view page_policy();

}  // namespace lowtide

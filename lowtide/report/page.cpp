#include "lowtide/report/page.h"

#include "lowtide/base/error.h"

namespace lowtide {

// Defined by the file that web/build.mjs writes, or by page_missing.cpp.
extern const std::string_view kPageHtml;

Page report_page() {
  if (kPageHtml.empty()) {
    throw UserError(
        "the report's page is missing from this program, which was built without Node: install nodejs and "
        "npm, "
        "run `npm ci` in web/ (scripts/setup.sh does both) and build again");
  }
  constexpr std::string_view kIndex = "<!-- index -->", kRows = "<!-- rows -->";
  const std::size_t index = kPageHtml.find(kIndex), rows = kPageHtml.rfind(kRows);
  LOWTIDE_CHECK(index < rows && rows != std::string_view::npos, "the page has no place for data");
  const std::size_t script = index + kIndex.size();
  return {kPageHtml.substr(0, index), kPageHtml.substr(script, rows - script),
          kPageHtml.substr(rows + kRows.size())};
}

std::string_view page_policy() {
  constexpr std::string_view kBegin = "http-equiv=\"Content-Security-Policy\" content=\"";
  const std::string_view head = report_page().head;
  const std::size_t begin = head.find(kBegin) + kBegin.size();
  const std::size_t end = head.find('"', begin);
  LOWTIDE_CHECK(begin > kBegin.size() && end != std::string_view::npos, "the page has no policy");
  return head.substr(begin, end - begin);
}

}  // namespace lowtide

#include <string_view>

namespace lowtide {

// In the place of the page where it could not be built; report_page() says so.
extern const std::string_view kPageHtml;
const std::string_view kPageHtml;

}  // namespace lowtide

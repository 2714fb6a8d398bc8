// In the place of the report where the libraries that it needs were not there when the program was built.
#include "lowtide/base/error.h"
#include "lowtide/report/report.h"
#include "lowtide/report/server.h"

namespace lowtide {
namespace {

[[noreturn]] void left_out() {
  throw UserError(
      "report and serve were left out of this program: install libsimdjson-dev and libcpp-httplib-dev "
      "(scripts/setup.sh does it) and build again");
}

}  // namespace

struct ReportServer::Implementation {};

ReportOutcome write_report(const std::vector<std::filesystem::path>&, const std::filesystem::path&,
                           const std::string&, const CostMeasure&) {
  left_out();
}

ReportServer::ReportServer(const ServeOptions&) { left_out(); }
ReportServer::~ReportServer() = default;
std::string ReportServer::address() const { left_out(); }
int ReportServer::port() const { left_out(); }
void ReportServer::run() { left_out(); }
void ReportServer::stop() { left_out(); }

}  // namespace lowtide

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/report/server.h"
#include "lowtide/study/live_studies.h"
#include "lowtide/train/signals.h"

namespace lowtide {

int serve_command(int argc, char** argv) {
  ServeOptions options;
  CLI::App app(
      "Serve the page of `lowtide report` while runs go on: new points appear by themselves. It only reads,\n"
      "and only what lies in DIR.",
      "serve");
  app.add_option("DIR", options.root, "a folder of run folders, or one of them")->required()->type_name("");
  app.add_option("--port", options.port, "0: one that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--host", options.host,
                 "address to listen on; the default is reached from this machine alone")
      ->capture_default_str();
  if (const auto code = parse(app, argc, argv)) return *code;
  LiveStudies studies(options.root);
  options.studies = [&] { return studies.look(); };
  ReportServer server(options);
  const StopSignals signals;
  std::jthread serving([&] { server.run(); });
  print_or_drop(fmt::format("{} shows {}; Ctrl-C stops\n", server.address(), options.root.string()));
  while (StopSignals::received() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.stop();
  return 0;
}

}  // namespace lowtide

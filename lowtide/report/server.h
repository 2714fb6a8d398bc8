#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "lowtide/base/json.h"

namespace lowtide {

struct ServeOptions {
  std::filesystem::path root;
  std::string host = "127.0.0.1";
  int port = 8420;                                               // 0: one that is free
  std::function<Json()> studies = [] { return Json::array(); };  // as LiveStudies gives them
};

// The report of a folder while its runs go on, over HTTP:
//   /                                          the page
//   /api/runs?since=REVISION                   LiveRuns::changes, as JSON
//   /api/lines?run=ID&generation=G&from=BYTE   LiveRuns::lines
//   /api/studies                               ServeOptions::studies, as JSON
// and nothing else: no request names a path. On an address of this machine alone, requests that were meant
// for another host are refused, so that a page from elsewhere cannot read along by naming this one its own.
class ReportServer {
 public:
  // Bound when it returns; UserError where the address cannot be had, or the root is not a folder.
  explicit ReportServer(const ServeOptions& options);
  ~ReportServer();
  ReportServer(const ReportServer&) = delete;
  ReportServer& operator=(const ReportServer&) = delete;

  std::string address() const;  // http://127.0.0.1:8420/
  int port() const;

  void run();  // until stop() is called, from another thread
  void stop();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lowtide

#include "lowtide/report/server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <thread>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "lowtide/report/page.h"
#include "tests/io/scratch.h"
#include "tests/report/made_up_run.h"
#include "tests/report/raw_client.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

bool has_page() {
  try {
    report_page();
    return true;
  } catch (const UserError&) {
    return false;
  }
}

class Server : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_page()) GTEST_SKIP() << "built without Node: there is no page to serve";
    write_run(scratch_ / "runs" / "one", {});
    write_atomically(scratch_ / "secret.txt", "secret");
    write_run(scratch_ / "outside", {.seed = 9});
    fs::create_directory_symlink(scratch_ / "outside", scratch_ / "runs" / "link");
    server_ = std::make_unique<ReportServer>(ServeOptions{scratch_ / "runs", "127.0.0.1", 0, [] {
                                                            return Json::array({{{"name", "suite"}}});
                                                          }});
    thread_ = std::jthread([this] { server_->run(); });
    client_ = std::make_unique<httplib::Client>("127.0.0.1", server_->port());
  }
  void TearDown() override {
    if (server_) server_->stop();
  }

  // Status and body of a request whose path is sent as it is.
  std::pair<int, std::string> get(const std::string& path, const httplib::Headers& headers = {}) {
    const httplib::Result result = client_->Get(path, headers);
    if (!result) return {0, ""};
    return {result->status, result->body};
  }

  const ScratchFolder scratch_;
  std::unique_ptr<ReportServer> server_;
  std::jthread thread_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(Server, ServesTheStudies) {
  const auto [status, body] = get("/api/studies");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(Json::parse(body), Json::parse(R"([{"name":"suite"}])"));
}

TEST_F(Server, ServesThePageAndTheRuns) {
  const auto [page_status, page] = get("/");
  EXPECT_EQ(page_status, 200);
  EXPECT_TRUE(contains(page, "<!doctype html>", "</html>"));
  EXPECT_EQ(page.find("id=\"report\""), std::string::npos) << "no data in it: that comes by itself";
  const auto [status, body] = get("/api/runs?since=0");
  EXPECT_EQ(status, 200);
  const Json changes = Json::parse(body);
  ASSERT_EQ(changes.at("runs").size(), 1);
  EXPECT_EQ(changes.at("runs").at(0).at("name"), "one");
  const std::string id = changes.at("runs").at(0).at("id").dump();
  const auto [lines_status, lines] = get("/api/lines?run=" + id + "&generation=0&from=0");
  EXPECT_EQ(lines_status, 200);
  EXPECT_TRUE(lines.starts_with("\x1f\x8b"));
}

TEST_F(Server, NothingElseCanBeReached) {
  for (const char* path :
       {"/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/one/run.json", "/runs/one/run.json",
        "/etc/passwd", "//etc/passwd", "/one/../../secret.txt", "/api/../../secret.txt", "/link/run.json",
        "/api/lines/../../secret.txt", "/index.html", "/api", "/\\..\\secret.txt", "/.%00/secret.txt"}) {
    SCOPED_TRACE(path);
    const auto [status, body] = get(path);
    EXPECT_EQ(status, 404);
    EXPECT_EQ(body.find("secret"), std::string::npos);
    EXPECT_EQ(body.find("root:"), std::string::npos);
  }
}

TEST_F(Server, ALinkThatLeadsOutIsToldOfAndNotFollowed) {
  const Json changes = Json::parse(get("/api/runs?since=0").second);
  EXPECT_EQ(changes.at("ids").size(), 1);
  ASSERT_EQ(changes.at("skipped").size(), 1);
  EXPECT_TRUE(contains(changes.at("skipped").at(0).at("reason"), "symbolic link"));
  EXPECT_EQ(changes.dump().find("\"seed\":9"), std::string::npos);
}

TEST_F(Server, WrongQuestionsAreRefused) {
  for (const char* path :
       {"/api/runs", "/api/runs?since=x", "/api/runs?since=-1", "/api/runs?since=1e3", "/api/lines",
        "/api/lines?run=1&generation=0", "/api/lines?run=../one&generation=0&from=0",
        "/api/lines?run=99999999999999999999999&generation=0&from=0"}) {
    SCOPED_TRACE(path);
    EXPECT_EQ(get(path).first, 400);
  }
  EXPECT_EQ(get("/api/lines?run=77&generation=0&from=0").first, 404);
  // In the middle of a line.
  EXPECT_EQ(get("/api/lines?run=1&generation=1&from=3").first, 409);
  const httplib::Result post = client_->Post("/api/runs?since=0", "x", "text/plain");
  ASSERT_TRUE(post);
  EXPECT_EQ(post->status, 405);
  EXPECT_EQ(post->get_header_value("Allow"), "GET, HEAD");
  EXPECT_EQ(client_->Delete("/")->status, 405);
  EXPECT_EQ(client_->Head("/")->status, 200);
}

TEST_F(Server, TheBrowserIsToldWhatThePageMayDo) {
  for (const char* path : {"/", "/api/runs?since=0", "/nothing"}) {
    SCOPED_TRACE(path);
    const httplib::Result result = client_->Get(path);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(result->get_header_value("Cache-Control"), "no-store");
    const std::string policy = result->get_header_value("Content-Security-Policy");
    EXPECT_TRUE(contains(policy, "default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'"));
    const std::string scripts = policy.substr(policy.find("script-src"));
    EXPECT_EQ(scripts.substr(0, scripts.find(';')).find("unsafe"), std::string::npos) << policy;
  }
}

TEST_F(Server, TwoHundredDrippingConnectionsDoNotStopIt) {
  std::vector<std::unique_ptr<RawClient>> drippers;
  for (int i = 0; i < 200; ++i) {
    drippers.push_back(std::make_unique<RawClient>(server_->port()));
    drippers.back()->send("GET /");
    if (i % 20 == 0) {
      EXPECT_EQ(get("/api/runs?since=0").first, 200);
    }
  }
  for (const auto& dripper : drippers) dripper->send("x");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get("/api/runs?since=0").first, 200);
}

TEST_F(Server, AnotherNameForThisHostIsRefused) {
  EXPECT_EQ(get("/api/runs?since=0", {{"Host", "evil.example"}}).first, 403);
  EXPECT_EQ(get("/", {{"Host", "127.0.0.1.evil.example:80"}}).first, 403);
  for (const char* host : {"localhost", "localhost:99", "127.0.0.1:1", "[::1]:5"})
    EXPECT_EQ(get("/", {{"Host", host}}).first, 200) << host;
}

TEST_F(Server, ATakenPortIsAnError) {
  const ServeOptions same{scratch_ / "runs", "127.0.0.1", server_->port()};
  EXPECT_TRUE(contains(user_error([&] { const ReportServer second(same); }), std::to_string(server_->port()),
                       "--port"));
  const ServeOptions nowhere{scratch_ / "runs", "192.0.2.1", 0};
  EXPECT_TRUE(contains(user_error([&] { const ReportServer second(nowhere); }), "192.0.2.1", "--host"));
  const ServeOptions missing{scratch_ / "none", "127.0.0.1", 0};
  EXPECT_TRUE(contains(user_error([&] { const ReportServer second(missing); }), "none", "no such folder"));
}

}  // namespace
}  // namespace lowtide

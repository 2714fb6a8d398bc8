#include "lowtide/report/bounded_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/report/raw_client.h"

namespace lowtide {
namespace {

using namespace std::chrono_literals;

class BoundedServerTest : public testing::Test {
 protected:
  void start(const ConnectionLimits& limits) {
    server_ = std::make_unique<BoundedServer>(limits);
    server_->Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("here", "text/plain");
    });
    server_->Get("/large", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(std::string(std::size_t{1} << 25, 'x'), "text/plain");
    });
    server_->Post("/", [](const httplib::Request& request, httplib::Response& response) {
      response.set_content(std::to_string(request.body.size()), "text/plain");
    });
    port_ = server_->bind_to_any_port("127.0.0.1");
    ASSERT_GT(port_, 0);
    thread_ = std::jthread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }
  void TearDown() override {
    if (server_) server_->stop();
  }

  std::string answer_to(const std::string& request) const {
    const RawClient client(port_);
    client.send(request);
    return client.receive();
  }

  std::unique_ptr<BoundedServer> server_;
  std::jthread thread_;
  int port_ = 0;
};

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(BoundedServerTest, AnswersOneRequestAConnection) {
  start({});
  const std::string answer = answer_to(kGet + kGet);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << answer;
  EXPECT_TRUE(answer_to("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").ends_with("\r\n\r\n3"));
}

TEST_F(BoundedServerTest, LargeAnswersArriveWhole) {
  start({});
  const std::string answer = answer_to("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, std::size_t{1} << 25);
}

TEST_F(BoundedServerTest, ReadsNoMoreThanItsAllowance) {
  start({.request_bytes = 10'000});
  const std::string_view megabyte_heads[] = {
      "POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n", "GET /",
      "GET / HTTP/1.1\r\nX-Long: ", ""};
  for (const std::string_view head : megabyte_heads) {
    SCOPED_TRACE(head);
    const RawClient client(port_);
    EXPECT_TRUE(client.send(head));
    const std::string block(1 << 16, 'x');
    // Sockets hold some megabytes by themselves; a server that reads on takes a hundred.
    int taken = 0;
    while (taken < 1600 && client.send(block)) ++taken;
    EXPECT_LT(taken, 1600);
  }
  EXPECT_TRUE(answer_to(kGet).starts_with("HTTP/1.1 200"));
}

TEST_F(BoundedServerTest, ARequestThatTakesTooLongIsGivenUp) {
  start({.request_time = 200ms});
  const RawClient silent(port_), slow(port_);
  for (int i = 0; i < 400 && slow.send("G"); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(slow.send("G")) << "each byte came in time, the request did not";
  EXPECT_TRUE(silent.is_closed_by_server());
}

TEST_F(BoundedServerTest, AnAnswerThatIsNotTakenIsGivenUp) {
  start({.connections = 1, .whole_time = 300ms});
  const RawClient lazy(port_);
  lazy.send("GET /large HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(1s);
  EXPECT_TRUE(lazy.is_closed_by_server());
}

TEST_F(BoundedServerTest, TheOldestGivesWayToTheNewest) {
  start({.connections = 4, .request_time = 600s, .whole_time = 600s});
  std::vector<std::unique_ptr<RawClient>> drippers;
  for (int i = 0; i < 40; ++i) {
    drippers.push_back(std::make_unique<RawClient>(port_));
    drippers.back()->send("GET / HT");
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(answer_to(kGet).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(drippers.front()->is_closed_by_server());
}

TEST_F(BoundedServerTest, StopsWithoutWaitingForClients) {
  start({.connections = 2, .request_time = 600s, .whole_time = 600s});
  const RawClient silent(port_), lazy(port_), waiting(port_);
  lazy.send("GET /large HTTP/1.1\r\n\r\n");
  server_->stop();
  thread_.join();
  server_.reset();
  for (const RawClient* client : {&silent, &lazy, &waiting}) EXPECT_TRUE(client->is_closed_by_server());
}

}  // namespace
}  // namespace lowtide

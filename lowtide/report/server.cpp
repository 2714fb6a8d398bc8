#include "lowtide/report/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <charconv>
#include <thread>

#include "lowtide/base/error.h"
#include "lowtide/report/bounded_server.h"
#include "lowtide/report/live_runs.h"
#include "lowtide/report/page.h"

namespace lowtide {
namespace {

constexpr int kNotFound = 404, kBadRequest = 400, kForbidden = 403, kNotAllowed = 405, kConflict = 409,
              kInternal = 500;

void answer(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "text/plain; charset=utf-8");
}

// As it is: the library would spend seconds on compressing a page for a browser on the same machine.
void send(httplib::Response& response, std::string body, const char* type) {
  const std::size_t size = body.size();
  response.set_content_provider(
      size, type, [text = std::move(body)](std::size_t from, std::size_t count, httplib::DataSink& sink) {
        return sink.write(text.data() + from, count);
      });
}

// A number of the query; nullopt where it is not one.
std::optional<std::uint64_t> number(const httplib::Request& request, const char* name) {
  const std::string text = request.get_param_value(name);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (is_ipv4 && ntohl(address.s_addr) >> 24 == 127);
}

// The name in a Host header, without its port and the brackets of IPv6.
std::string host_name(const std::string& header) {
  if (header.starts_with('[')) return header.substr(1, header.find(']') - 1);
  return header.substr(0, header.find(':'));
}

// SO_REUSEADDR so that a server can be started again at once. The library would add SO_REUSEPORT, with which
// two servers share a port and neither is told.
void socket_options(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

}  // namespace

struct ReportServer::Implementation {
  explicit Implementation(const ServeOptions& serve_options)
      : options(serve_options), runs(serve_options.root) {}

  void screen();
  void route();
  void bind();
  void send_lines(const httplib::Request& request, httplib::Response& response);

  ServeOptions options;
  LiveRuns runs;
  BoundedServer server;
  int port = 0;
  std::atomic<bool> entered = false, stopping = false, left = false;  // of run()
};

// Before a body is read, and before a path is looked at.
void ReportServer::Implementation::screen() {
  const bool own_address_alone = is_loopback(options.host);
  server.set_pre_routing_handler([=](const httplib::Request& request, httplib::Response& response) {
    if (own_address_alone && !is_loopback(host_name(request.get_header_value("Host")))) {
      answer(response, kForbidden, "this server answers to its own address alone");
    } else if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      answer(response, kNotAllowed, "this server only shows");
    } else {
      return httplib::Server::HandlerResponse::Unhandled;
    }
    return httplib::Server::HandlerResponse::Handled;
  });
}

void ReportServer::Implementation::send_lines(const httplib::Request& request, httplib::Response& response) {
  const auto run = number(request, "run"), generation = number(request, "generation"),
             from = number(request, "from");
  if (!run || !generation || !from)
    return answer(response, kBadRequest, "expected numbers run, generation and from");
  try {
    const std::optional<std::string> lines = runs.lines(*run, *generation, *from);
    if (!lines) return answer(response, kNotFound, "there is no such run");
    send(response, *lines, "application/octet-stream");
  } catch (const UserError& error) {
    answer(response, kConflict, error.what());  // damaged, or replaced a moment ago: the next look tells
  }
}

void ReportServer::Implementation::route() {
  // The page's own policy, and what cannot be said in the page itself: nobody may show it in a frame.
  server.set_default_headers(
      {{"Content-Security-Policy", fmt::format("{}; frame-ancestors 'none'", page_policy())},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Referrer-Policy", "no-referrer"},
       {"X-Content-Type-Options", "nosniff"},
       {"Cache-Control", "no-store"}});
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    const Page page = report_page();
    send(response, fmt::format("{}{}{}", page.head, page.script, page.tail), "text/html; charset=utf-8");
  });
  server.Get("/api/runs", [this](const httplib::Request& request, httplib::Response& response) {
    const auto since = number(request, "since");
    if (!since) return answer(response, kBadRequest, "expected a number since");
    send(response, runs.changes(*since).dump(-1, ' ', false, Json::error_handler_t::replace),
         "application/json");
  });
  server.Get("/api/lines", [this](const httplib::Request& request, httplib::Response& response) {
    send_lines(request, response);
  });
  server.Get("/api/studies", [this](const httplib::Request&, httplib::Response& response) {
    send(response, options.studies().dump(-1, ' ', false, Json::error_handler_t::replace),
         "application/json");
  });
  server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) answer(response, response.status, "there is nothing here");
  });
  server.set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
        answer(response, kInternal, "internal error");
      });
}

void ReportServer::Implementation::bind() {
  server.set_socket_options(socket_options);
  const bool any = options.port == 0;
  port = any ? server.bind_to_any_port(options.host) : options.port;
  if (any ? port > 0 : server.bind_to_port(options.host, options.port)) return;
  throw UserError(fmt::format(
      "serve: cannot listen on {} port {}: taken, or not an address of this machine; choose another "
      "--port (0: any that is free) or --host",
      options.host, options.port));
}

ReportServer::ReportServer(const ServeOptions& options) {
  report_page();
  search_runs(options.root);
  implementation_ = std::make_unique<Implementation>(options);
  implementation_->screen();
  implementation_->route();
  implementation_->bind();
}

ReportServer::~ReportServer() = default;

int ReportServer::port() const { return implementation_->port; }

std::string ReportServer::address() const {
  const std::string& host = implementation_->options.host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}/", is_ipv6 ? "[" + host + "]" : host, port());
}

void ReportServer::run() {
  implementation_->entered = true;
  if (!implementation_->stopping) implementation_->server.listen_after_bind();
  implementation_->left = true;
}

// The library forgets a stop that comes before it listens.
void ReportServer::stop() {
  implementation_->stopping = true;
  if (!implementation_->entered) return;
  while (!implementation_->server.is_running() && !implementation_->left) std::this_thread::yield();
  implementation_->server.stop();
}

}  // namespace lowtide

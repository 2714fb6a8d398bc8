#include "lowtide/io/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

#include "lowtide/io/crc32c.h"
#include "lowtide/io/protobuf.h"

namespace lowtide {
namespace {

// A flush is asked for at every logged line; this bounds the memory of a caller that never asks.
constexpr std::size_t kBufferLimit = 65536;

// Field numbers of event.proto and summary.proto.
constexpr std::uint64_t kEventWallTime = 1;
constexpr std::uint64_t kEventStep = 2;
constexpr std::uint64_t kEventFileVersion = 3;
constexpr std::uint64_t kEventSummary = 5;
constexpr std::uint64_t kEventSessionLog = 7;
constexpr std::uint64_t kSummaryValue = 1;
constexpr std::uint64_t kValueTag = 1;
constexpr std::uint64_t kValueSimpleValue = 2;
constexpr std::uint64_t kSessionLogStatus = 1;
constexpr std::int64_t kSessionLogStart = 1;

std::string event_header(double wall_time, std::int64_t step) {
  std::string event;
  append_double(event, kEventWallTime, wall_time);
  append_integer(event, kEventStep, step);
  return event;
}

// TFRecord masks its checksums (rotated by 15, a constant added), since the checksum of data that holds its
// own checksum is weak.
std::uint32_t masked_crc32c(std::string_view data) {
  return std::rotr(crc32c(bytes_of(data)), 15) + 0xa282ead8u;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::filesystem::path event_file(const std::filesystem::path& folder) {
  static std::atomic<unsigned> counter{0};
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(unix_time()),
                              host_name(), ::getpid(), counter++);
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventWriter::EventWriter(const std::filesystem::path& folder)
    : path_(event_file(folder)), file_(open_for_writing(path_, O_EXCL | O_APPEND)) {
  std::string event = event_header(unix_time(), 0);
  append_bytes(event, kEventFileVersion, "brain.Event:2");
  append_record(event);
  flush();
}

EventWriter::~EventWriter() {
  try {
    flush();
  } catch (const UserError&) {
    // A destructor has nobody to tell; who must know calls flush().
  }
}

void EventWriter::scalar(std::string_view tag, double value, std::int64_t step, double wall_time) {
  std::string summary_value;
  append_bytes(summary_value, kValueTag, tag);
  append_float(summary_value, kValueSimpleValue, static_cast<float>(value));
  std::string summary;
  append_bytes(summary, kSummaryValue, summary_value);
  std::string event = event_header(wall_time, step);
  append_bytes(event, kEventSummary, summary);
  append_record(event);
}

void EventWriter::session_start(std::int64_t step, double wall_time) {
  std::string session_log;
  append_integer(session_log, kSessionLogStatus, kSessionLogStart);
  std::string event = event_header(wall_time, step);
  append_bytes(event, kEventSessionLog, session_log);
  append_record(event);
}

void EventWriter::append_record(const std::string& event) {
  std::string length;
  append_little_endian(length, static_cast<std::uint64_t>(event.size()));
  buffer_ += length;
  append_little_endian(buffer_, masked_crc32c(length));
  buffer_ += event;
  append_little_endian(buffer_, masked_crc32c(event));
  if (buffer_.size() >= kBufferLimit) flush();
}

void EventWriter::flush() {
  if (buffer_.empty()) return;
  append_whole(file_, bytes_of(buffer_), path_);
  buffer_.clear();
}

}  // namespace lowtide

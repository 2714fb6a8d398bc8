#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lowtide/io/file.h"

namespace lowtide {

// Seconds since 1970, as TensorBoard's times are.
double unix_time();

// Writes scalars for TensorBoard: one file of TFRecords, each a protobuf message `Event`
// (tensorflow/core/util/event.proto). Events are buffered: `flush` hands them to the system, and so does the
// destructor, which keeps silent about errors. Not for use by several threads at once.
class EventWriter {
 public:
  // Creates events.out.tfevents.<seconds>.<host>.<process>.<n> in a folder that exists. TensorBoard reads the
  // files of a folder in the order of their names, so that a resumed run follows the one that it resumes.
  explicit EventWriter(const std::filesystem::path& folder);
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;
  ~EventWriter();

  const std::filesystem::path& path() const { return path_; }

  void scalar(std::string_view tag, double value, std::int64_t step, double wall_time = unix_time());

  // Makes TensorBoard drop the events of earlier files whose step is `step` or more: at a resume, the first
  // step that will be logged again.
  void session_start(std::int64_t step, double wall_time = unix_time());

  void flush();

 private:
  void append_record(const std::string& event);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::string buffer_;
};

}  // namespace lowtide

#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/io/crc32c.h"
#include "lowtide/io/file.h"
#include "tests/io/scratch.h"

namespace lowtide {

// A reader written from the format's description alone, to hold the writer against.
class EventDecoder {
 public:
  explicit EventDecoder(std::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }

  std::string_view take(std::size_t count) {
    if (count > rest_.size()) throw std::runtime_error("cut short");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::uint64_t fixed(std::size_t count) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char c : take(count)) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << shift;
      shift += 8;
    }
    return value;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint64_t byte = fixed(1);
      value |= (byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }

  std::string_view record() {
    const std::string_view length_bytes = take(8);
    const std::uint64_t length = EventDecoder(length_bytes).fixed(8);
    EXPECT_EQ(unmask(fixed(4)), crc32c(bytes_of(length_bytes)));
    const std::string_view data = take(length);
    EXPECT_EQ(unmask(fixed(4)), crc32c(bytes_of(data)));
    return data;
  }

 private:
  static std::uint32_t unmask(std::uint64_t masked) {
    const std::uint32_t rotated = static_cast<std::uint32_t>(masked) - 0xa282ead8u;
    return (rotated >> 17) | (rotated << 15);
  }

  std::string_view rest_;
};

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::optional<std::string> file_version;
  std::optional<std::string> tag;
  std::optional<float> value;
  std::optional<int> session_status;
};

inline void decode_value(std::string_view bytes, Event& event) {
  EventDecoder in(bytes);
  while (!in.done()) {
    const std::uint64_t key = in.varint();
    if (key == (1 << 3 | 2)) {
      event.tag = std::string(in.take(in.varint()));
    } else if (key == (2 << 3 | 5)) {
      event.value = std::bit_cast<float>(static_cast<std::uint32_t>(in.fixed(4)));
    } else {
      throw std::runtime_error("unknown field of Value");
    }
  }
}

inline Event decode_event(std::string_view bytes) {
  Event event;
  EventDecoder in(bytes);
  while (!in.done()) {
    const std::uint64_t key = in.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = std::bit_cast<double>(in.fixed(8));
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<std::int64_t>(in.varint());
    } else if (key == (3 << 3 | 2)) {
      event.file_version = std::string(in.take(in.varint()));
    } else if (key == (5 << 3 | 2)) {
      EventDecoder summary(in.take(in.varint()));
      EXPECT_EQ(summary.varint(), std::uint64_t{1 << 3 | 2});
      decode_value(summary.take(summary.varint()), event);
      EXPECT_TRUE(summary.done());
    } else if (key == (7 << 3 | 2)) {
      EventDecoder session(in.take(in.varint()));
      EXPECT_EQ(session.varint(), std::uint64_t{1 << 3 | 0});
      event.session_status = static_cast<int>(session.varint());
    } else {
      throw std::runtime_error("unknown field of Event");
    }
  }
  return event;
}

inline std::vector<Event> read_events(const std::filesystem::path& path) {
  const std::string bytes = read_text_file(path);
  EventDecoder in(bytes);
  std::vector<Event> events;
  while (!in.done()) events.push_back(decode_event(in.record()));
  return events;
}

}  // namespace lowtide

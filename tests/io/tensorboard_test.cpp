#include "lowtide/io/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "lowtide/io/crc32c.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

TEST(Crc32c, KnownVectors) {
  // RFC 3720, appendix B.4, and the check value of the CRC catalogue.
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  EXPECT_EQ(crc32c(bytes_of(rising)), 0x46dd794eu);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

// A reader written from the format's description alone, to hold the writer against.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : rest_(bytes) {}

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
    const std::uint64_t length = Decoder(length_bytes).fixed(8);
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

void decode_value(std::string_view bytes, Event& event) {
  Decoder in(bytes);
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

Event decode_event(std::string_view bytes) {
  Event event;
  Decoder in(bytes);
  while (!in.done()) {
    const std::uint64_t key = in.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = std::bit_cast<double>(in.fixed(8));
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<std::int64_t>(in.varint());
    } else if (key == (3 << 3 | 2)) {
      event.file_version = std::string(in.take(in.varint()));
    } else if (key == (5 << 3 | 2)) {
      Decoder summary(in.take(in.varint()));
      EXPECT_EQ(summary.varint(), std::uint64_t{1 << 3 | 2});
      decode_value(summary.take(summary.varint()), event);
      EXPECT_TRUE(summary.done());
    } else if (key == (7 << 3 | 2)) {
      Decoder session(in.take(in.varint()));
      EXPECT_EQ(session.varint(), std::uint64_t{1 << 3 | 0});
      event.session_status = static_cast<int>(session.varint());
    } else {
      throw std::runtime_error("unknown field of Event");
    }
  }
  return event;
}

std::vector<Event> read_events(const std::filesystem::path& path) {
  const std::string bytes = read_text_file(path);
  Decoder in(bytes);
  std::vector<Event> events;
  while (!in.done()) events.push_back(decode_event(in.record()));
  return events;
}

TEST(EventWriter, WritesWhatAReaderDecodes) {
  const ScratchFolder folder;
  EventWriter writer(folder.path());
  writer.session_start(100, 5.5);
  writer.scalar("train/loss", 0.25, 100, 6.5);
  writer.scalar(std::string(300, 't'), -1e30, std::int64_t{1} << 40, 7.5);
  writer.flush();
  const std::vector<Event> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_NEAR(events[0].wall_time, unix_time(), 60);
  EXPECT_EQ(events[1].session_status, 1);
  EXPECT_EQ(events[1].step, 100);
  EXPECT_EQ(events[1].wall_time, 5.5);
  EXPECT_EQ(events[2].tag, "train/loss");
  EXPECT_EQ(events[2].value, 0.25f);
  EXPECT_EQ(events[2].step, 100);
  EXPECT_EQ(events[2].wall_time, 6.5);
  EXPECT_EQ(events[3].tag, std::string(300, 't'));
  EXPECT_EQ(events[3].value, -1e30f);
  EXPECT_EQ(events[3].step, std::int64_t{1} << 40);
}

TEST(EventWriter, RecordHasTheseBytes) {
  // By hand from the format: the first record is the file_version; then one scalar at time 1.0
  // time 1.0 (3ff0…), step 2, tag "a", value 1.0 (3f800000).
  const ScratchFolder folder;
  EventWriter writer(folder.path());
  const std::size_t first = read_text_file(writer.path()).size();
  writer.scalar("a", 1.0, 2, 1.0);
  writer.flush();
  const std::string record = read_text_file(writer.path()).substr(first);
  const std::string event("\x09\0\0\0\0\0\0\xf0\x3f\x10\x02\x2a\x0a\x0a\x08\x0a\x01\x61\x15\0\0\x80\x3f", 23);
  ASSERT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x17\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

TEST(EventWriter, NumbersThatAreNotFiniteStayWhatTheyAre) {
  const ScratchFolder folder;
  EventWriter writer(folder.path());
  writer.scalar("inf", std::numeric_limits<double>::infinity(), 0);
  writer.scalar("nan", std::numeric_limits<double>::quiet_NaN(), 0);
  writer.flush();
  const std::vector<Event> events = read_events(writer.path());
  EXPECT_EQ(events.at(1).value, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(events.at(2).value != events.at(2).value);
}

TEST(EventWriter, NamesItsFileForTensorBoard) {
  const ScratchFolder folder;
  const EventWriter first(folder.path());
  const EventWriter second(folder.path());
  EXPECT_NE(first.path(), second.path());
  const std::string name = first.path().filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  EXPECT_NEAR(std::stod(name.substr(20, 10)), unix_time(), 60) << name;
  EXPECT_TRUE(contains(name, "." + std::to_string(::getpid()) + "."));
  EXPECT_EQ(first.path().parent_path(), folder.path());
}

TEST(EventWriter, TheDestructorFlushes) {
  const ScratchFolder folder;
  std::filesystem::path path;
  {
    EventWriter writer(folder.path());
    path = writer.path();
    writer.scalar("a", 1, 1);
    EXPECT_EQ(read_events(path).size(), 1u);
  }
  EXPECT_EQ(read_events(path).size(), 2u);
}

TEST(EventWriter, ALongUnflushedStretchIsWrittenInWholeRecords) {
  const ScratchFolder folder;
  EventWriter writer(folder.path());
  for (int step = 0; step < 5000; ++step) writer.scalar("train/loss", step, step);
  EXPECT_GT(read_events(writer.path()).size(), 1000u);
  writer.flush();
  const std::vector<Event> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 5001u);
  for (int step = 0; step < 5000; ++step) EXPECT_EQ(events[static_cast<std::size_t>(step) + 1].step, step);
}

TEST(EventWriter, SaysThatItsFolderIsMissing) {
  EXPECT_TRUE(contains(user_error([] { EventWriter("/nowhere/run"); }), "its folder does not exist"));
}

}  // namespace
}  // namespace lowtide

#include "lowtide/io/tensorboard.h"

#include <unistd.h>

#include <limits>
#include <vector>

#include "lowtide/io/crc32c.h"
#include "tests/io/event_decoder.h"
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

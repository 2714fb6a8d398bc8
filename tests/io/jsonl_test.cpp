#include "lowtide/io/jsonl.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

TEST(JsonlWriter, EveryLineIsReadableAtOnce) {
  const ScratchFolder folder;
  JsonlWriter writer(folder / "metrics.jsonl");
  for (int step = 0; step < 3; ++step) {
    writer.append({{"step", step}, {"loss", 0.5}});
    EXPECT_EQ(read_jsonl(folder / "metrics.jsonl").lines.size(), static_cast<std::size_t>(step + 1));
  }
  writer.sync();
  EXPECT_EQ(read_text_file(folder / "metrics.jsonl"),
            "{\"step\":0,\"loss\":0.5}\n{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.5}\n");
}

TEST(JsonlWriter, ContinuesAFile) {
  const ScratchFolder folder;
  JsonlWriter(folder / "m").append({{"a", 1}});
  JsonlWriter(folder / "m").append({{"b", 2}});
  EXPECT_EQ(read_text_file(folder / "m"), "{\"a\":1}\n{\"b\":2}\n");
}

TEST(JsonlWriter, CutsAnUnfinishedLineBeforeItContinues) {
  const ScratchFolder folder;
  write_atomically(folder / "m", "{\"a\":1}\n{\"b\":");
  JsonlWriter(folder / "m").append({{"c", 3}});
  EXPECT_EQ(read_text_file(folder / "m"), "{\"a\":1}\n{\"c\":3}\n");
  write_atomically(folder / "m", "{\"a");
  JsonlWriter(folder / "m").append({{"c", 3}});
  EXPECT_EQ(read_text_file(folder / "m"), "{\"c\":3}\n");
}

TEST(JsonlWriter, NumbersThatAreNotFiniteBecomeNull) {
  const ScratchFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  JsonlWriter(folder / "m").append({{"nan", std::nan("")}, {"inf", infinity}, {"minus", -infinity}});
  EXPECT_EQ(read_text_file(folder / "m"), "{\"nan\":null,\"inf\":null,\"minus\":null}\n");
  EXPECT_TRUE(read_jsonl(folder / "m").lines.at(0).at("nan").is_null());
}

TEST(JsonlWriter, TextThatIsNotUtf8AndNewlinesStayOneValidLine) {
  const ScratchFolder folder;
  JsonlWriter(folder / "m").append({{"text", "a\xff\nb"}});
  const Jsonl content = read_jsonl(folder / "m");
  ASSERT_EQ(content.lines.size(), 1u);
  EXPECT_EQ(content.lines[0]["text"], "a\uFFFD\nb");
}

TEST(JsonlWriter, DoublesComeBackExactly) {
  const ScratchFolder folder;
  JsonlWriter writer(folder / "m");
  const std::vector<double> values{0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0};
  for (const double value : values) writer.append({{"v", value}});
  const Jsonl content = read_jsonl(folder / "m");
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::signbit(content.lines[i]["v"].get<double>()), std::signbit(values[i]));
    EXPECT_EQ(content.lines[i]["v"].get<double>(), values[i]);
  }
}

TEST(JsonlWriter, AKilledProcessLosesNoWholeLine) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    JsonlWriter writer(folder / "m");
    for (int step = 0; step < 100; ++step) writer.append({{"step", step}});
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_jsonl(folder / "m").lines.size(), 100u);
}

TEST(JsonlWriter, SaysThatTheDiskIsFull) {
  JsonlWriter writer("/dev/full");
  EXPECT_TRUE(contains(user_error([&] { writer.append({{"a", 1}}); }), "/dev/full", "No space left"));
}

TEST(JsonlWriter, SaysThatItsFolderIsMissing) {
  EXPECT_TRUE(
      contains(user_error([&] { JsonlWriter("/nowhere/metrics.jsonl"); }), "its folder does not exist"));
}

TEST(Jsonl, CutShortAtEveryByteGivesTheWholeLinesAndTheRest) {
  const std::string text = "{\"a\":1}\n{\"b\":[1,2]}\n{\"c\":\"x\"}\n";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string cut = text.substr(0, size);
    const Jsonl content = parse_jsonl(cut, "m");
    EXPECT_EQ(content.lines.size(), static_cast<std::size_t>(std::count(cut.begin(), cut.end(), '\n')));
    EXPECT_EQ(content.unfinished, cut.substr(cut.rfind('\n') + 1));
  }
}

TEST(Jsonl, ADamagedLineIsNamed) {
  const auto message = [](const std::string& text) {
    return user_error([&] { parse_jsonl(text, "run/metrics.jsonl"); });
  };
  EXPECT_TRUE(contains(message("{}\n{\"a\":\n{}\n"), "run/metrics.jsonl:2: is not valid JSON"));
  EXPECT_TRUE(contains(message("{}\n\n{}\n"), "metrics.jsonl:2: "));
  EXPECT_TRUE(contains(message("{}\n{}\n[1]\n"), "metrics.jsonl:3: holds array, not an object"));
  EXPECT_TRUE(contains(message("{} {}\n"), "metrics.jsonl:1: is not valid JSON"));
  EXPECT_TRUE(contains(message("{\"a\":1,\"a\":2}\n"), "metrics.jsonl:1: has the key \"a\" twice"));
  EXPECT_TRUE(contains(message("{\"a\":1e999}\n"), "metrics.jsonl:1: is not valid JSON"));
  EXPECT_TRUE(contains(message("{\"a\":" + std::string(100000, '[') + "\n"), "nested more than 64"));
  EXPECT_TRUE(contains(message(std::string("\0\0\0\n", 4)), "metrics.jsonl:1: is not valid JSON"));
  EXPECT_TRUE(contains(message(std::string("{}\0x\n", 5)), "metrics.jsonl:1: is not valid JSON"));
}

TEST(TruncateJsonl, KeepsWhatIsAskedByteForByte) {
  const ScratchFolder folder;
  write_atomically(folder / "m", "{\"step\": 1, \"v\":1.50}\n{\"step\":2}\n{\"step\":3}\n{\"st");
  const auto keep = [](const Json& line) { return line.at("step") <= 2; };
  EXPECT_EQ(truncate_jsonl(folder / "m", keep), 1u);
  EXPECT_EQ(read_text_file(folder / "m"), "{\"step\": 1, \"v\":1.50}\n{\"step\":2}\n");
  EXPECT_EQ(truncate_jsonl(folder / "m", keep), 0u);
  EXPECT_EQ(truncate_jsonl(folder / "m", [](const Json&) { return false; }), 2u);
  EXPECT_EQ(read_text_file(folder / "m"), "");
}

TEST(TruncateJsonl, LeavesADamagedFileAlone) {
  const ScratchFolder folder;
  const std::string text = "{\"step\":1}\n?\n{\"step\":3}\n";
  write_atomically(folder / "m", text);
  EXPECT_TRUE(contains(user_error([&] { truncate_jsonl(folder / "m", [](const Json&) { return false; }); }),
                       "m:2: is not valid JSON"));
  EXPECT_EQ(read_text_file(folder / "m"), text);
}

}  // namespace
}  // namespace lowtide

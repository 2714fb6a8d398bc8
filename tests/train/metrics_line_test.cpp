#include "lowtide/train/metrics_line.h"

#include <gtest/gtest.h>

#include "lowtide/io/file.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

TEST(MetricsLine, OfTraining) {
  TrainingLine line{.step = 100,
                    .loss = 0.5,
                    .rate = 0.125,
                    .bits = {3, 8},
                    .relative_cost = 0.25,
                    .gbitops_paper = 2,
                    .gbitops_actual = 3,
                    .items_per_second = 640,
                    .seconds = 20,
                    .metric_name = "accuracy",
                    .metric = 0.75};
  EXPECT_EQ(
      to_json(line).dump(),
      R"({"step":100,"loss":0.5,"lr":0.125,"bits":3,"grad_bits":8,"relative_cost":0.25,)"
      R"("gbitops_paper":2.0,"gbitops_actual":3.0,"items_per_s":640.0,"seconds":20.0,"accuracy":0.75})");
  line.metric = std::nullopt;
  EXPECT_FALSE(to_json(line).contains("accuracy"));
}

TEST(MetricsLine, OfAnEvaluation) {
  EvaluationLine line{.step = 100,
                      .split = Split::kTest,
                      .metric_name = "mAP",
                      .metric = 0.75,
                      .loss = 0.5,
                      .bits = 8,
                      .seconds = 20,
                      .also = {{"mAP_11_points", 0.25}}};
  EXPECT_EQ(to_json(line).dump(), R"({"step":100,"split":"test","mAP":0.75,"loss":0.5,"bits":8,)"
                                  R"("seconds":20.0,"mAP_11_points":0.25})");
  line.is_final = true;
  EXPECT_EQ(to_json(line).at("final"), true);
}

TEST(MetricsLine, OfLayersHasWhatIsKnownOfEach) {
  const LayersLine line{.step = 50,
                        .layers = {{.layer = "conv1", .weight_snr = 30, .clipped = 0.25, .sensitivity = 2},
                                   {.layer = "fc", .sensitivity = 0.5}},
                        .took = 0.5,
                        .seconds = 10};
  EXPECT_EQ(to_json(line).dump(),
            R"({"step":50,"split":"layers","took":0.5,"seconds":10.0,"conv1.weight_snr":30.0,)"
            R"("conv1.clipped":0.25,"conv1.sensitivity":2.0,"fc.sensitivity":0.5})");
}

TEST(MetricsLine, OfAProbeHasBothLossesAndWhatCameOfThem) {
  const ProbeLine line{.step = 100,
                       .coarse_bits = 5,
                       .coarse_loss = 0.75,
                       .fine_loss = 0.5,
                       .bits = 6,
                       .took = 0.25,
                       .seconds = 10};
  EXPECT_EQ(to_json(line).dump(), R"({"step":100,"split":"probe","coarse_bits":5,"coarse_loss":0.75,)"
                                  R"("fine_loss":0.5,"bits":6,"took":0.25,"seconds":10.0})");
}

TEST(MetricsLine, TheMetricIsTheKeyThatNotAllTasksHave) {
  for (const char* key : {"step", "loss", "lr", "bits", "grad_bits", "relative_cost", "gbitops_paper",
                          "gbitops_actual", "items_per_s", "seconds"})
    EXPECT_TRUE(is_training_key(key)) << key;
  for (const char* key : {"accuracy", "perplexity", "mAP", ""}) EXPECT_FALSE(is_training_key(key)) << key;
}

TEST(LoggedLine, IsReadAsFarAsItIsThere) {
  const LoggedLine whole =
      logged_line({{"step", 7}, {"split", "valid"}, {"loss", 0.5}, {"seconds", 2}, {"final", true}}, "here");
  EXPECT_EQ(whole.step, 7);
  EXPECT_EQ(whole.split, "valid");
  EXPECT_EQ(whole.seconds, 2);
  EXPECT_TRUE(whole.is_final);
  EXPECT_EQ(whole.figure("loss"), 0.5);
  EXPECT_FALSE(whole.figure("split") || whole.figure("accuracy"));
  const LoggedLine odd = logged_line({{"seconds", "x"}, {"loss", nullptr}}, "here");
  EXPECT_FALSE(odd.step || odd.seconds || odd.is_final || odd.figure("loss"));
  EXPECT_EQ(odd.split, "");
}

TEST(LoggedLine, AStepThatIsNoneIsDamage) {
  for (const Json& step : {Json("ten"), Json(), Json(1.5)}) {
    EXPECT_TRUE(contains(user_error([&] {
                           logged_line({{"step", step}}, "here");
                         }),
                         "here: a line's step is " + step.dump()));
  }
}

TEST(LoggedLine, AFileHasThemInItsOrder) {
  const ScratchFolder folder;
  write_atomically(folder / "metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":");
  const std::vector<LoggedLine> lines = read_logged_lines(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2u);  // the last one was cut off
  EXPECT_EQ(lines[1].step, 2);
}

TEST(LoggedLine, TheLastOneIsReadFromTheEnd) {
  const ScratchFolder folder;
  const auto last = [&](const std::string& text) {
    write_atomically(folder / "metrics.jsonl", text);
    return last_logged_line(folder / "metrics.jsonl");
  };
  EXPECT_FALSE(last(""));
  EXPECT_FALSE(last("{\"step\":"));
  EXPECT_EQ(last("{\"step\":1}\n")->step, 1);
  EXPECT_EQ(last("{\"step\":1}\n{\"step\":2}\n{\"step\":")->step, 2);
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "{\"step\":" + std::to_string(i) + "}\n";
  EXPECT_EQ(last(many)->step, 19'999);
  EXPECT_TRUE(contains(user_error([&] { last("{\"step\":1}\nnonsense\n"); }), "metrics.jsonl"));
}

}  // namespace
}  // namespace lowtide

// The task of detection as a run: it resumes byte for byte, and says in a line what is wrong with its input.
#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"
#include "tests/data/detection/small_voc.h"
#include "tests/io/scratch.h"
#include "tests/train/kept_best.h"
#include "tests/train/resumed.h"

namespace lowtide {
namespace {

class DetectionRun : public testing::Test {
 protected:
  DetectionRun() {
    write_small_voc(folder_ / "voc");
    recipe_.data.format = "voc";
    recipe_.data.dir = (folder_ / "voc").string();
    recipe_.data.train_set = recipe_.data.test_set = "train:4";
    recipe_.data.resize = 40;
    recipe_.data.max_size = 64;
    recipe_.data.flip = true;
    recipe_.model.name = "retinanet18";
    recipe_.precision.schedule = "CR";
    recipe_.precision.bits = "5:8";
    recipe_.precision.cycles = 2;
    recipe_.training.steps = 4;
    recipe_.training.batch = 2;
    recipe_.training.optimizer = "adam";
    recipe_.training.lr = 1e-4;
    recipe_.training.weight_decay = 0;
    recipe_.training.clip = 0.1;
    recipe_.running.log_every = 3;
    recipe_.running.checkpoint_every = 1;
    recipe_.running.keep_checkpoints = 100;
  }

  const ScratchFolder folder_;
  Recipe recipe_;
};

TEST_F(DetectionRun, ResumedEqualsUninterrupted) {
  recipe_.training.steps = 3;  // a checkpoint has 240 MB
  expect_resumes_exactly(recipe_, folder_.path(), {2});
}

TEST_F(DetectionRun, TheBestIsKept) {
  recipe_.data.train_set = "train:8";
  recipe_.data.validation = 4;  // some of which have objects: without any there is no mAP
  recipe_.running.eval_every = 1;
  recipe_.training.steps = 2;
  recipe_.training.optimizer = "sgd";
  expect_keeps_best(recipe_, folder_.path());
}

TEST_F(DetectionRun, DoesNotDependOnTheNumberOfThreads) {
  recipe_.training.steps = 2;
  expect_run_independent_of_threads(recipe_, folder_.path());
}

TEST_F(DetectionRun, NormalisationStaysAsTheFirstImagesLeftIt) {
  recipe_.training.steps = 2;
  EXPECT_EQ(train(recipe_, folder_ / "run").at("metric"), "mAP");
  const auto task = make_task(recipe_);
  const auto statistics = [&](std::int64_t step) {
    read_checkpoint_tensors(RunPaths{folder_ / "run"}.checkpoint(step), model_tensors(task->model()));
    return task->model().named_buffers()["layer2.0.norm1.running_mean"].clone();
  };
  const torch::Tensor first = statistics(1);
  EXPECT_GT(first.abs().max().item<float>(), 0);
  EXPECT_TRUE(first.equal(statistics(2)));
}

TEST_F(DetectionRun, MistakesAreALine) {
  const auto told = [&](auto&& change) {
    const Recipe good = recipe_;
    change(recipe_);
    const std::string message = user_error([&] { make_task(recipe_); });
    recipe_ = good;
    return message;
  };
  EXPECT_TRUE(contains(told([](Recipe& r) { r.model.name = "resnet18"; }), "unknown detector 'resnet18'",
                       "retinanet18"));
  EXPECT_TRUE(contains(told([](Recipe& r) { r.data.max_size = 30; }), "max-size is 30", "40"));
  EXPECT_TRUE(contains(told([](Recipe& r) { r.data.mean = {0.5}; }), "mean", "three"));
  EXPECT_TRUE(contains(told([](Recipe& r) { r.data.std = {1, 0, 1}; }), "std 0", "more than 0"));
  EXPECT_TRUE(
      contains(told([](Recipe& r) { r.data.train_set = "train:9"; }), "train.txt", "8 images", "train:9"));
  EXPECT_TRUE(
      contains(told([](Recipe& r) { r.data.train_set = "train:x"; }), "train:x", "a number of images"));
  EXPECT_TRUE(contains(told([](Recipe& r) { r.data.test_set = "test"; }), "test.txt"));
  EXPECT_TRUE(
      contains(told([](Recipe& r) { r.model.weights = "/nowhere.safetensors"; }), "/nowhere.safetensors"));
  EXPECT_TRUE(contains(told([](Recipe& r) { r.data.dir = "/nowhere"; }), "/nowhere", "Pascal VOC"));
}

}  // namespace
}  // namespace lowtide

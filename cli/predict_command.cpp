#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/run_weights.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/data/decode.h"
#include "lowtide/data/detection/draw.h"
#include "lowtide/data/encode_png.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/models/anchors.h"
#include "lowtide/tasks/detection_setup.h"
#include "lowtide/tasks/find_objects.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/train/checkpoint.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxImageFileBytes = std::size_t{1} << 28;  // as in data sets

struct PredictArguments {
  std::string run, checkpoint, out, device = "cpu";
  std::vector<std::string> images;
  double score = 0.5;
  int bits = -1, threads = 0;
  bool json = false;
};

fs::path checkpoint_of(const PredictArguments& arguments) {
  if (arguments.run.empty() == arguments.checkpoint.empty()) {
    throw UserError("expected one of --run FOLDER and --checkpoint FILE");
  }
  return arguments.run.empty() ? fs::path(arguments.checkpoint) : last_weights({arguments.run});
}

// A detector as a checkpoint has it.
class Detector {
 public:
  Detector(const fs::path& checkpoint, const PredictArguments& arguments) {
    Recipe recipe =
        recipe_from_json(read_checkpoint_state(checkpoint).value("recipe", Json()), checkpoint.string());
    if (task_of(recipe.data) != TaskKind::kDetection) {
      throw UserError(fmt::format("{}: a checkpoint of {}; predict draws what detectors find",
                                  checkpoint.string(), recipe.model.name));
    }
    if (arguments.bits != -1) recipe.precision.eval_bits = arguments.bits;
    recipe.running.device = arguments.device;
    recipe.precision.engine = "auto";
    recipe.model.weights.clear();  // the checkpoint has all of them
    check(recipe);
    device_ = device_of(recipe.running);
    view_ = view_of(recipe.data, /*training=*/false);
    execution_ = make_execution(recipe.precision, recipe.running, recipe.training.seed);
    classes_ = detector_classes(recipe.data);
    model_ = make_detector(recipe.model, classes_.size(), recipe.precision.layer_bits, execution_);
    model_->to(device_);
    read_checkpoint_tensors(checkpoint, model_tensors(*model_));
    bits_ = evaluation_bits(recipe.precision);
  }

  const std::vector<std::string>& classes() const { return classes_; }

  // In pixels of the image, the surest first.
  std::vector<Detection> find(const Image& image, double least_score) {
    const ImageFit fit = fit_sides(image.height, image.width, view_.shorter, view_.longer);
    const std::int64_t height = padded_side(fit.height), width = padded_side(fit.width);
    const torch::Tensor pixels = torch::zeros({1, height, width, 3});
    place_image(image, fit, view_, /*flip=*/false, width, pixels.data_ptr<float>());
    const Evaluating evaluating(*model_, *execution_, bits_);
    const DetectorOutput output = model_->forward(pixels.permute({0, 3, 1, 2}).to(device_));
    const std::vector<ImageFit> fits{fit};
    const auto all = find_objects(output, make_anchors(height, width).to(device_), fits);
    std::vector<Detection> found;
    for (Detection detection : all.at(0)) {
      if (detection.score < least_score) continue;
      detection.box = clipped(scaled(detection.box, 1 / fit.scale), image.width, image.height);
      found.push_back(detection);
    }
    return found;
  }

 private:
  torch::Device device_ = torch::kCPU;
  DetectionView view_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<RetinaNet> model_;
  Bits bits_;
  std::vector<std::string> classes_;
};

// Where an image is drawn.
fs::path drawing_of(const std::string& image, const PredictArguments& arguments) {
  if (arguments.images.size() == 1) return arguments.out;
  return fs::path(arguments.out) / (fs::path(image).stem().string() + ".png");
}

// No drawing takes the place of an image that was given, or of another drawing.
void expect_places(const PredictArguments& arguments) {
  std::set<fs::path> drawings;
  for (const std::string& image : arguments.images) {
    const fs::path drawing = drawing_of(image, arguments);
    if (!drawings.insert(drawing).second)
      throw UserError(
          fmt::format("two images would be drawn on {}; draw them one at a time", drawing.string()));
    for (const std::string& given : arguments.images) {
      std::error_code none;
      if (fs::equivalent(given, drawing, none))
        throw UserError(
            fmt::format("the drawing of {} would take the place of {}; choose another --out", image, given));
    }
  }
}

using Classes = std::vector<std::string>;

void draw(Image& image, const std::vector<Detection>& found, const Classes& classes) {
  const int size = std::max(1, std::min(image.height, image.width) / 200);
  for (auto detection = found.rbegin(); detection != found.rend(); ++detection)
    draw_box(image, detection->box, colour_of(detection->label), size);
  // Names after all boxes, the surest last: none is crossed out.
  for (auto detection = found.rbegin(); detection != found.rend(); ++detection) {
    const std::string& name = classes[static_cast<std::size_t>(detection->label)];
    draw_label(image, static_cast<int>(detection->box.left), static_cast<int>(detection->box.top),
               fmt::format("{} {:.2f}", name, detection->score), colour_of(detection->label), size);
  }
}

Json to_json(const std::string& file, const std::vector<Detection>& found, const Classes& classes) {
  Json objects = Json::array();
  for (const Detection& detection : found) {
    objects.push_back(
        {{"class", classes[static_cast<std::size_t>(detection.label)]},
         {"score", detection.score},
         {"box", {detection.box.left, detection.box.top, detection.box.right, detection.box.bottom}}});
  }
  return {{"image", file}, {"objects", objects}};
}

void print(std::FILE* where, const std::string& file, const std::vector<Detection>& found,
           const Classes& classes) {
  fmt::print(where, "{}: {} object{}\n", file, found.size(), found.size() == 1 ? "" : "s");
  for (const Detection& detection : found) {
    fmt::print(where, "  {:<12} {:.3f}  {:6.1f} {:6.1f} {:6.1f} {:6.1f}\n",
               classes[static_cast<std::size_t>(detection.label)], detection.score, detection.box.left,
               detection.box.top, detection.box.right, detection.box.bottom);
  }
}

}  // namespace

int predict_command(int argc, char** argv) {
  PredictArguments arguments;
  CLI::App app("Find objects in images with a trained detector; draw their boxes.", "predict");
  app.add_option("IMAGE", arguments.images, "JPEG, PNG or WebP files")->required();
  app.add_option("--run", arguments.run, "run folder: its averaged weights, or its last checkpoint")
      ->type_name("FOLDER");
  app.add_option("--checkpoint", arguments.checkpoint, "a file in the checkpoints folder of a run")
      ->type_name("FILE");
  app.add_option("--out", arguments.out, "PNG to draw on, - is standard output; for several images a folder")
      ->check(no_file_of_a_run())
      ->type_name("PATH");
  app.add_option("--score", arguments.score, "the least score of what is shown")
      ->check(CLI::Range(0.05, 1.0))
      ->capture_default_str();
  app.add_option("--eval-bits", arguments.bits, "bits; 0: fp32; -1: as its recipe says")
      ->capture_default_str();
  app.add_option("--device", arguments.device, "where it is computed")
      ->capture_default_str()
      ->type_name(kDevices);
  app.add_option("--threads", arguments.threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", arguments.json, "print JSON, boxes as left, top, right, bottom");
  if (const auto code = parse(app, argc, argv)) return *code;
  if (is_standard_output(arguments.out) && arguments.images.size() > 1)
    throw UserError("--out - takes one image; name a folder for several");
  if (!arguments.out.empty() && !is_standard_output(arguments.out)) expect_places(arguments);
  expect_choice("device", arguments.device, kDevices);
  const fs::path checkpoint = checkpoint_of(arguments);
  prepare_torch(arguments.threads);
  Detector detector(checkpoint, arguments);
  Json all = Json::array();
  for (const std::string& file : arguments.images) {
    Image image = decode_image(read_file(file, kMaxImageFileBytes), file);
    const std::vector<Detection> found = detector.find(image, arguments.score);
    if (arguments.json) {
      all.push_back(to_json(file, found, detector.classes()));
    } else {
      print(message_stream(arguments.out), file, found, detector.classes());
    }
    if (arguments.out.empty()) continue;
    draw(image, found, detector.classes());
    if (arguments.images.size() > 1) make_folders(arguments.out);
    const std::vector<std::byte> png = encode_rgb_png(image);
    write_output(drawing_of(file, arguments), text_of(png));
  }
  if (arguments.json) fmt::print(message_stream(arguments.out), "{}\n", all.dump(2));
  return 0;
}

}  // namespace lowtide

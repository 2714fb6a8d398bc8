#include "lowtide/recipe/keys.h"

#include <fmt/format.h>

#include <utility>

#include "lowtide/base/shards.h"
#include "lowtide/schedule/schedule.h"

namespace lowtide {
namespace {

// Far beyond what any machine holds, and far from where sizes computed from them overflow.
constexpr double kMostBatch = 1 << 24, kMostUnits = 1 << 20;
constexpr double kMostLayers = 1024, kMostLength = 65536, kMostPixels = 65535;

constexpr Accepted shown_as(std::string_view kind) { return {.kind = kind}; }
constexpr Accepted one_of(std::string_view choices) { return {.kind = choices}; }
constexpr Accepted at_least(double low) { return {.low = low}; }
constexpr Accepted above(double low) { return {.low = low, .open_low = true}; }
constexpr Accepted between(double low, double high) { return {.low = low, .high = high}; }
constexpr Accepted from_to_below(double low, double high) {
  return {.low = low, .high = high, .open_high = true};
}

std::vector<RecipeKey> data_keys(DataOptions& d) {
  return {
      {"data", &d.format,
       "format, which says the task too: idx, cifar10, cifar100, folder, tiny-imagenet (images); ptb, "
       "wikitext, text (language); ogb, npz, musae, citation (nodes of a graph); voc (detection); xnli, "
       "mnli, rte, sick, pairs (entailment)",
       shown_as("FORMAT")},
      {"data-dir", &d.dir, "folder of the data set; of text also one file", shown_as("FOLDER")},
      {"validation", &d.validation, "training items held out to choose by; 0 trains on all of them",
       at_least(0)},
      {"augment", &d.augment, "what is done to training images", one_of("none|pad-crop|random-resized-crop")},
      {"padding", &d.padding, "of pad-crop, pixels on each side", between(0, kMostPixels)},
      {"flip", &d.flip, "mirror half of the training images"},
      {"image-size", &d.image_size, "height and width the network sees; 0: as in the files",
       between(0, kMostPixels)},
      {"resize", &d.resize, "evaluation: shorter side before the centre crop; 0: none",
       between(0, kMostPixels)},
      {"max-size", &d.max_size, "detection: the longer side at most, the shorter being --resize",
       between(0, kMostPixels)},
      {"train-set", &d.train_set, "detection: images to train on, or the first so many of them: train:16"},
      {"test-set", &d.test_set, "detection: images to test on, likewise"},
      {"classes", &d.classes,
       "detection, pairs: names of the classes, in this order; none: those of the training set"},
      {"skip-damaged", &d.skip_damaged,
       "folder, tiny-imagenet, voc: leave out images that cannot be read, and say how many"},
      {"mean", &d.mean, "per channel, subtracted from pixels in 0..1"},
      {"std", &d.std, "per channel, divided by"},
      {"length", &d.length, "language: words that a step goes back; entailment: pieces of a pair at most",
       between(1, kMostLength)},
      {"tokens", &d.tokens, "text: what a token is", one_of("words|characters")},
      {"min-count", &d.min_count, "text: what occurs less often in training is <unk>", at_least(1)},
      {"columns", &d.columns,
       "pairs: premise, hypothesis and label, by their names in the header or numbers from 1; none: by the "
       "usual names"},
      {"vocabulary", &d.vocabulary, "entailment: the WordPiece file, vocab.txt", shown_as("FILE")},
      {"lower-case", &d.lower_case, "entailment: the vocabulary is uncased"},
      {"language", &d.language, "entailment: of xnli"},
      {"test-language", &d.test_language,
       "entailment: of what xnli is chosen by and tested on; empty: --language"},
      {"undirected", &d.undirected, "nodes: every edge leads both ways"},
      {"node-features", &d.node_features,
       "nodes: as-is, standardise (each column) or normalise (each row's sum)",
       one_of("as-is|standardise|normalise")},
      {"node-split", &d.node_split,
       "nodes: data (the files' own), or drawn: 0.6:0.2 (shares to train and to validate), 20:30 (nodes a "
       "class)"},
      {"fan-out", &d.fan_out, "nodes: neighbours drawn in each layer; none: the whole graph in every step",
       at_least(1)},
  };
}

std::vector<RecipeKey> model_keys(ModelOptions& m) {
  return {
      {"model", &m.name, "a name from `lowtide models`", shown_as("MODEL")},
      {"hidden", &m.hidden, "units of a layer (lstm, transformer, bert, gcn, sage, gat)",
       between(1, kMostUnits)},
      {"layers", &m.layers, "layers of those", between(1, kMostLayers)},
      {"heads", &m.heads, "of attention (transformer, bert, gat)", between(1, kMostUnits)},
      {"feed-forward", &m.feed_forward,
       "units between the two products of a transformer's layer; 0: four times --hidden",
       between(0, kMostUnits)},
      {"dropout", &m.dropout, "share of activations set to zero in training", from_to_below(0, 1)},
      {"input-dropout", &m.input_dropout, "graphs: the same of the nodes' features", from_to_below(0, 1)},
      {"norm", &m.norm, "graphs, between layers: tensor (all nodes and features together) or none",
       one_of("tensor|none")},
      {"aggregation", &m.aggregation, "graphs: fp32 (FP-Agg) or quantized (Q-Agg)", one_of("fp32|quantized")},
      {"quantize-norm", &m.quantize_norm, "graphs: quantise what the normalisation reads as well"},
      {"freeze-norm", &m.freeze_norm,
       "detection: batch normalisation keeps the statistics and factors it begins with"},
      {"weights", &m.weights,
       "weights to begin with: a safetensors file; for bert also a folder with config.json and "
       "model.safetensors",
       shown_as("FILE")},
  };
}

std::vector<RecipeKey> precision_keys(PrecisionOptions& p) {
  return {
      {"schedule", &p.schedule,
       "a name (CR, RR, static, fp32 ...) or a whole line (`lowtide schedule --help`)", shown_as("SCHEDULE")},
      {"bits", &p.bits, "forward bits, lowest:highest"},
      {"grad-bits", &p.grad_bits,
       "gradient bits, a range that moves with the forward bits, or a schedule in brackets"},
      {"cycles", &p.cycles, "cycles of the schedule"},
      {"k", &p.k, "rate of exponential profiles"},
      {"c", &p.c, "bend of REX profiles"},
      {"eval-bits", &p.eval_bits, "bits of evaluation; 0: fp32; -1: the schedule's highest, or its tail's"},
      {"layer-bits", &p.layer_bits, "bits of single layers by name pattern: conv1=8 '*.shortcut=fp32'"},
      {"grad-rounding", &p.grad_rounding, "how gradients are rounded", one_of("stochastic|nearest")},
      {"bifurcate", &p.bifurcate, "keep the weight gradient's error unquantised"},
      {"recompute", &p.recompute, "save memory: compute what batch norm needs again in the backward pass"},
      {"engine", &p.engine,
       "how quantised products are computed: simulated, integer (CPU), or auto: the fastest",
       shown_as("ENGINE")},
  };
}

std::vector<RecipeKey> training_keys(TrainingOptions& t) {
  constexpr auto kMost = static_cast<double>(kMostSteps);
  return {
      {"steps", &t.steps, "training steps; 0: by --epochs", between(0, kMost)},
      {"epochs", &t.epochs, "passes over the training items, where --steps is 0", at_least(0)},
      {"batch", &t.batch, "items a step", between(1, kMostBatch)},
      {"shards", &t.shards,
       "parts of a batch, each computed as a batch of its own: as many ranks at most can share a step",
       between(1, static_cast<double>(kMostShards))},
      {"optimizer", &t.optimizer, "adamw: weight decay apart from the gradient", one_of("sgd|adam|adamw")},
      {"lr", &t.lr, "learning rate", above(0)},
      {"momentum", &t.momentum, "of sgd", from_to_below(0, 1)},
      {"weight-decay", &t.weight_decay, "added to the gradient, times the weight", at_least(0)},
      {"decay-layers", &t.decay_layers,
       "layers, or parameters, that decay, by name pattern: layer0 '*.weight'; none: all"},
      {"betas", &t.betas, "of adam"},
      {"clip", &t.clip, "largest norm of the gradient; 0: any", at_least(0)},
      {"lr-schedule", &t.lr_schedule, "how the learning rate changes",
       one_of("steps|cosine|linear|inverse-sqrt|plateau|constant")},
      {"lr-steps",
       &t.lr_steps,
       "of `steps`: where the rate falls; fractions of the run, or steps if above 1",
       {.low = 0, .high = kMost, .open_low = true}},
      {"lr-gamma", &t.lr_gamma, "of `steps` and `plateau`: what it is multiplied by", above(0)},
      {"plateau-every", &t.plateau_every,
       "of `plateau`: steps between two looks at the held-out loss, after which the rate falls unless that "
       "is the lowest yet; 0: an epoch",
       at_least(0)},
      {"lr-final", &t.lr_final, "of cosine and linear: the last rate, as a fraction of the first",
       between(0, 1)},
      {"lr-delay", &t.lr_delay, "steps at the full rate before the lr-schedule begins; it spans the rest",
       at_least(0)},
      {"warmup", &t.warmup, "steps in which the rate rises from 0", at_least(0)},
      {"swa-start", &t.swa_start, "average the weights from this fraction of the run on; 1: never",
       between(0, 1)},
      {"swa-every", &t.swa_every, "steps between two weights that are averaged", at_least(1)},
      {"keep-best", &t.keep_best,
       "keep the weights of the best evaluation of the held-out items too: checkpoints/best.safetensors"},
      {"patience", &t.patience,
       "stop after so many evaluations in a row without a better one, and keep the best; 0: never",
       at_least(0)},
      {"seed", &t.seed, "of weights, order, augmentation and rounding"},
  };
}

std::vector<RecipeKey> device_keys(RunningOptions& r) {
  return {
      {"device", &r.device, "where it is computed", one_of("cpu|cuda")},
      {"tf32", &r.tf32,
       "cuda: multiply floats as TF32, with 10 bits after the point, as PyTorch's convolutions do: faster, "
       "and 2e-4 off; a cpu ignores it"},
  };
}

std::vector<RecipeKey> running_keys(RunningOptions& r) {
  return {
      {"ranks", &r.ranks,
       "processes that share a step, a divisor of --shards: started here, or by torchrun, mpirun or srun",
       between(1, static_cast<double>(kMostShards))},
      {"threads", &r.threads, "of each rank; 0: all cores that the process may use",
       between(0, RunningOptions::kMostThreads)},
      {"loader-threads", &r.loader_threads, "threads that read and augment ahead; 0: as needed",
       between(0, RunningOptions::kMostThreads)},
      {"gpu-memory",
       &r.gpu_memory,
       "cuda: the share of the GPU's memory that the run may take, where it is not alone there",
       {.low = 0, .high = 1, .open_low = true}},
      {"log-every", &r.log_every, "steps between two lines of metrics.jsonl", at_least(1)},
      {"layer-stats", &r.layer_stats,
       "steps between two looks at what rounding does to each layer: noise, clipping, sensitivity; 0: never",
       at_least(0)},
      {"eval-every", &r.eval_every, "steps between two evaluations; 0: only at the end", at_least(0)},
      {"checkpoint-every", &r.checkpoint_every, "steps between two checkpoints; 0: only at the end",
       at_least(0)},
      {"keep-checkpoints", &r.keep_checkpoints, "how many of the last to keep", at_least(1)},
  };
}

}  // namespace

std::string Accepted::range_text() const {
  const bool bounded = high < std::numeric_limits<double>::infinity();
  if (open_low)
    return fmt::format("a number above {:.0f}{}", low, bounded ? fmt::format(", at most {:.0f}", high) : "");
  if (!bounded) return fmt::format("{:.0f} or more", low);
  return fmt::format("{:.0f}{} {:.0f}", low, open_high ? " or more, below" : " to", high);
}

std::vector<RecipeKey> recipe_keys(Recipe& recipe) {
  std::vector<RecipeKey> keys;
  const auto add = [&](std::string_view group, std::vector<RecipeKey> part) {
    for (RecipeKey& key : part) {
      key.group = group;
      keys.push_back(std::move(key));
    }
  };
  add("Data", data_keys(recipe.data));
  add("Model and precision", model_keys(recipe.model));
  add("Model and precision", precision_keys(recipe.precision));
  add("Training", training_keys(recipe.training));
  add(kDeviceGroup, device_keys(recipe.running));
  add(kRunningGroup, running_keys(recipe.running));
  return keys;
}

}  // namespace lowtide

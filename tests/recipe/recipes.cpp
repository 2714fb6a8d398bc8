#include "tests/recipe/recipes.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>

namespace lowtide {

Recipe parse_arguments(std::vector<std::string> arguments) {
  Recipe recipe;
  CLI::App app("test", "train");
  app.set_config("--recipe", "", "recipe file");
  app.allow_config_extras(CLI::config_extras_mode::error);
  define_recipe(app, recipe);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return recipe;
}

Recipe unusual_recipe() {
  Recipe r;
  r.data.format = "cifar100";
  r.data.dir = "/data sets/CIFAR-100, binary";
  r.data.validation = 5000;
  r.data.augment = "pad-crop";
  r.data.padding = 3;
  r.data.flip = true;
  r.data.image_size = 28;
  r.data.resize = 33;
  r.data.train_set = "trainval";
  r.data.test_set = "test:100";
  r.data.max_size = 500;
  r.data.classes = {"a cat", "dog", "Käfer, rot"};
  r.data.skip_damaged = true;
  r.data.tokens = "characters";
  r.data.min_count = 3;
  r.data.columns = {"2", "1", "gold label"};
  r.data.test_language = "ur";
  r.data.length = 70;
  r.data.vocabulary = "vocab.txt";
  r.data.lower_case = true;
  r.data.language = "sw";
  r.data.undirected = false;
  r.data.node_features = "standardise";
  r.data.node_split = "0.6:0.2";
  r.data.fan_out = {32, 16};
  r.model.hidden = 800;
  r.model.layers = 3;
  r.model.heads = 8;
  r.model.feed_forward = 1000;
  r.model.dropout = 0.5;
  r.model.input_dropout = 0.25;
  r.model.norm = "none";
  r.model.aggregation = "quantized";
  r.model.quantize_norm = true;
  r.model.freeze_norm = false;
  r.model.weights = "weights.safetensors";
  r.training.plateau_every = 1327;
  r.data.mean = {0.25, 0.1, 1e-7};
  r.data.std = {0.5};
  r.model.name = "cifar-resnet20";
  r.precision.schedule = "deficit 3:8 grad=8 steps=1000";
  r.precision.bits = "2:6";
  r.precision.grad_bits = "6:8";
  r.precision.cycles = 4;
  r.precision.k = 0.1 + 0.2;  // needs all 17 digits
  r.precision.c = 0.3;
  r.precision.eval_bits = 0;
  r.precision.layer_bits = {"conv1=8", "*.shortcut=fp32", "group?.0.*=scheduled"};
  r.precision.grad_rounding = "nearest";
  r.precision.bifurcate = true;
  r.precision.recompute = true;
  r.precision.engine = "other";
  r.training.steps = 64000;
  r.training.epochs = 0.5;
  r.training.batch = 6;
  r.training.shards = 6;
  r.training.optimizer = "adam";
  r.training.lr = 1e-5;
  r.training.momentum = 0;
  r.training.weight_decay = 0;
  r.training.decay_layers = {"layer0", "*.weight"};
  r.training.betas = {0.8, 0.99};
  r.training.clip = 0.25;
  r.training.lr_schedule = "cosine";
  r.training.lr_steps = {30, 60, 1e6};
  r.training.lr_gamma = 0.25;
  r.training.lr_final = 0.1;
  r.training.lr_delay = 250;
  r.training.warmup = 500;
  r.training.swa_start = 0.75;
  r.training.swa_every = 10;
  r.training.keep_best = true;
  r.training.patience = 5;
  r.training.seed = std::numeric_limits<std::int64_t>::max();  // the largest whole number of TOML
  r.running.device = "cuda";
  r.running.tf32 = true;
  r.running.ranks = 2;
  r.running.threads = 3;
  r.running.loader_threads = 2;
  r.running.gpu_memory = 0.3;
  r.running.log_every = 7;
  r.running.layer_stats = 9;
  r.running.eval_every = 0;
  r.running.checkpoint_every = 11;
  r.running.keep_checkpoints = 1;
  return r;
}

}  // namespace lowtide

#include "tests/train/recipes.h"

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
  r.data = "cifar100";
  r.data_dir = "/data sets/CIFAR-100, binary";
  r.validation = 5000;
  r.augment = "pad-crop";
  r.padding = 3;
  r.flip = true;
  r.image_size = 28;
  r.resize = 33;
  r.train_set = "trainval";
  r.test_set = "test:100";
  r.max_size = 500;
  r.classes = {"a cat", "dog", "Käfer, rot"};
  r.skip_damaged = true;
  r.tokens = "characters";
  r.min_count = 3;
  r.columns = {"2", "1", "gold label"};
  r.test_language = "ur";
  r.length = 70;
  r.vocabulary = "vocab.txt";
  r.lower_case = true;
  r.language = "sw";
  r.undirected = false;
  r.node_features = "standardise";
  r.node_split = "0.6:0.2";
  r.fan_out = {32, 16};
  r.hidden = 800;
  r.layers = 3;
  r.heads = 8;
  r.feed_forward = 1000;
  r.dropout = 0.5;
  r.input_dropout = 0.25;
  r.norm = "none";
  r.aggregation = "quantized";
  r.quantize_norm = true;
  r.freeze_norm = false;
  r.weights = "weights.safetensors";
  r.plateau_every = 1327;
  r.mean = {0.25, 0.1, 1e-7};
  r.std = {0.5};
  r.model = "cifar-resnet20";
  r.schedule = "deficit 3:8 grad=8 steps=1000";
  r.bits = "2:6";
  r.grad_bits = "6:8";
  r.cycles = 4;
  r.k = 0.1 + 0.2;  // needs all 17 digits
  r.c = 0.3;
  r.eval_bits = 0;
  r.layer_bits = {"conv1=8", "*.shortcut=fp32", "group?.0.*=scheduled"};
  r.grad_rounding = "nearest";
  r.bifurcate = true;
  r.recompute = true;
  r.engine = "other";
  r.steps = 64000;
  r.epochs = 0.5;
  r.batch = 1;
  r.optimizer = "adam";
  r.lr = 1e-5;
  r.momentum = 0;
  r.weight_decay = 0;
  r.decay_layers = {"layer0", "*.weight"};
  r.betas = {0.8, 0.99};
  r.clip = 0.25;
  r.lr_schedule = "cosine";
  r.lr_steps = {30, 60, 1e6};
  r.lr_gamma = 0.25;
  r.lr_final = 0.1;
  r.lr_delay = 250;
  r.warmup = 500;
  r.swa_start = 0.75;
  r.swa_every = 10;
  r.keep_best = true;
  r.patience = 5;
  r.seed = std::numeric_limits<std::int64_t>::max();  // the largest whole number of TOML
  r.device = "cuda";
  r.threads = 3;
  r.loader_threads = 2;
  r.log_every = 7;
  r.eval_every = 0;
  r.checkpoint_every = 11;
  r.keep_checkpoints = 1;
  return r;
}

}  // namespace lowtide

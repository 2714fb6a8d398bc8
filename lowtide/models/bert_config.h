#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lowtide {

// What a BERT is (Devlin et al. 2019), as its config.json says it.
struct BertConfig {
  std::int64_t vocabulary = 30522;   // vocab_size
  std::int64_t hidden = 768;         // hidden_size
  std::int64_t layers = 12;          // num_hidden_layers
  std::int64_t heads = 12;           // num_attention_heads
  std::int64_t feed_forward = 3072;  // intermediate_size
  std::int64_t positions = 512;      // max_position_embeddings
  std::int64_t types = 2;            // type_vocab_size
  std::int64_t padding = 0;          // pad_token_id
  double dropout = 0.1;              // hidden_dropout_prob
  double attention_dropout = 0.1;    // attention_probs_dropout_prob
  double norm_epsilon = 1e-12;       // layer_norm_eps
};

// UserError, which begins with `name`, for numbers that no network has.
void check(const BertConfig& config, const std::string& name);

// The sizes must be there, the rest has the values above by default. Keys that change nothing here are passed over.
// UserError, which begins with `name`, for text that is no JSON object, a key that is missing or of another type, and an
// activation other than GELU.
BertConfig parse_bert_config(std::string_view text, const std::string& name);

BertConfig open_bert_config(const std::filesystem::path& path);

}  // namespace lowtide

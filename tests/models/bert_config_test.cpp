#include "lowtide/models/bert_config.h"

#include <gtest/gtest.h>

#include "lowtide/base/json.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

// The config.json of bert-base-multilingual-cased, shortened.
Json published() {
  return Json::parse(R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi", "hidden_act": "gelu", "hidden_dropout_prob": 0.2, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
    "position_embedding_type": "absolute", "type_vocab_size": 2, "use_cache": true, "vocab_size": 119547})");
}

std::string error_with(const char* key, const Json& value) {
  Json json = published();
  json[key] = value;
  return user_error([&] { parse_bert_config(json.dump(), "config.json"); });
}

TEST(BertConfig, Published) {
  const BertConfig config = parse_bert_config(published().dump(), "config.json");
  EXPECT_EQ(config.vocabulary, 119547);
  EXPECT_EQ(config.hidden, 768);
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.feed_forward, 3072);
  EXPECT_EQ(config.positions, 512);
  EXPECT_EQ(config.dropout, 0.2);
  EXPECT_EQ(config.attention_dropout, 0.1);
  EXPECT_EQ(config.norm_epsilon, 1e-12);
}

TEST(BertConfig, WhatIsNotSaidHasItsDefault) {
  const BertConfig config = parse_bert_config(
      R"({"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
          "intermediate_size": 9, "max_position_embeddings": 16})",
      "config.json");
  EXPECT_EQ(config.types, 2);
  EXPECT_EQ(config.dropout, 0.1);
  EXPECT_EQ(config.norm_epsilon, 1e-12);
}

TEST(BertConfig, WrongInputIsOneLine) {
  EXPECT_TRUE(contains(error_with("num_attention_heads", 7), "config.json", "7 heads do not divide 768"));
  EXPECT_TRUE(contains(error_with("hidden_size", -768), "hidden_size", "-768", "a whole number"));
  EXPECT_TRUE(contains(error_with("hidden_size", 1e300), "hidden_size", "a whole number"));
  EXPECT_TRUE(contains(error_with("hidden_size", "768"), "hidden_size"));
  EXPECT_TRUE(contains(error_with("num_hidden_layers", 0), "0 layers"));
  EXPECT_TRUE(contains(error_with("num_attention_heads", 0), "0 heads"));
  EXPECT_TRUE(contains(error_with("hidden_act", "relu"), "hidden_act", "relu", "gelu"));
  EXPECT_TRUE(contains(error_with("model_type", "roberta"), "model_type", "roberta", "bert"));
  EXPECT_TRUE(contains(error_with("hidden_dropout_prob", 1.0), "dropout of 1"));
  EXPECT_TRUE(contains(error_with("type_vocab_size", 1), "type"));
  EXPECT_TRUE(contains(error_with("pad_token_id", 119547), "padding", "119547"));
  Json json = published();
  json.erase("vocab_size");
  EXPECT_TRUE(contains(user_error([&] { parse_bert_config(json.dump(), "c"); }), "c: ", "vocab_size"));
  for (const char* text : {"", "[]", "{", "{\"a\":1,\"a\":2}", "3", "null"}) {
    EXPECT_TRUE(contains(user_error([&] { parse_bert_config(text, "c"); }), "c: ", "config.json of a BERT"))
        << text;
  }
  EXPECT_TRUE(contains(user_error([] { open_bert_config("/nowhere/config.json"); }), "/nowhere/config.json"));
}

}  // namespace
}  // namespace lowtide

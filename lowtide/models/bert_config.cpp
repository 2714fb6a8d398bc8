#include "lowtide/models/bert_config.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/base/json.h"
#include "lowtide/io/json_check.h"
#include "lowtide/io/mapped_file.h"

namespace lowtide {
namespace {

constexpr std::int64_t kLargest = 1 << 24;  // of any size: more words or units than any network has

// Reads keys of one object into members.
class Reader {
 public:
  Reader(const Json& object, const std::string& name) : object_(object), name_(name) {}

  void required(const char* key, std::int64_t& value) const {
    if (!object_.contains(key))
      throw UserError(fmt::format("{}: no key '{}'; expected the config.json of a BERT", name_, key));
    optional(key, value);
  }

  void optional(const char* key, std::int64_t& value) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return;
    const bool fits = found->is_number_unsigned() && found->get<std::uint64_t>() <= kLargest;
    if (!fits) wrong(key, *found, fmt::format("a whole number from 0 to {}", kLargest));
    value = found->get<std::int64_t>();
  }

  void optional(const char* key, double& value) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return;
    if (!found->is_number()) wrong(key, *found, "a number");
    value = found->get<double>();
  }

  void expect_text(const char* key, std::string_view expected) const {
    const auto found = object_.find(key);
    if (found != object_.end() && *found != expected) wrong(key, *found, fmt::format("\"{}\"", expected));
  }

 private:
  [[noreturn]] void wrong(const char* key, const Json& value, const std::string& expected) const {
    throw UserError(fmt::format("{}: {} is {}; expected {}", name_, key, shown(value.dump()), expected));
  }

  const Json& object_;
  const std::string& name_;
};

}  // namespace

void check(const BertConfig& config, const std::string& name) {
  const auto expect = [&](bool right, const std::string& what, const char* expected) {
    if (!right) throw UserError(fmt::format("{}: {}; expected {}", name, what, expected));
  };
  for (const auto& [what, size] :
       {std::pair{"words", config.vocabulary}, std::pair{"hidden units", config.hidden},
        std::pair{"layers", config.layers}, std::pair{"heads", config.heads},
        std::pair{"feed-forward units", config.feed_forward}, std::pair{"positions", config.positions},
        std::pair{"types", config.types}}) {
    expect(size > 0, fmt::format("{} {}", size, what), "1 or more");
  }
  expect(config.hidden % config.heads == 0,
         fmt::format("{} heads do not divide {} hidden units", config.heads, config.hidden),
         "heads of equal size");
  expect(config.types >= 2, fmt::format("{} type of sentence", config.types), "2 or more, for pairs");
  expect(config.padding < config.vocabulary,
         fmt::format("the padding is word {} of {}", config.padding, config.vocabulary), "one that there is");
  for (const double dropout : {config.dropout, config.attention_dropout}) {
    expect(dropout >= 0 && dropout < 1, fmt::format("dropout of {}", dropout), "0 or more, below 1");
  }
  expect(config.norm_epsilon > 0 && config.norm_epsilon < 1,
         fmt::format("layer_norm_eps of {}", config.norm_epsilon), "above 0, below 1");
}

BertConfig parse_bert_config(std::string_view text, const std::string& name) {
  const Json object = parse_json(text, name, "expected the config.json of a BERT");
  if (!object.is_object()) {
    throw UserError(
        fmt::format("{}: {}; expected a JSON object, the config.json of a BERT", name, object.type_name()));
  }
  const Reader read(object, name);
  read.expect_text("model_type", "bert");
  read.expect_text("hidden_act", "gelu");
  read.expect_text("position_embedding_type", "absolute");
  BertConfig config;
  read.required("vocab_size", config.vocabulary);
  read.required("hidden_size", config.hidden);
  read.required("num_hidden_layers", config.layers);
  read.required("num_attention_heads", config.heads);
  read.required("intermediate_size", config.feed_forward);
  read.required("max_position_embeddings", config.positions);
  read.optional("type_vocab_size", config.types);
  read.optional("pad_token_id", config.padding);
  read.optional("hidden_dropout_prob", config.dropout);
  read.optional("attention_probs_dropout_prob", config.attention_dropout);
  read.optional("layer_norm_eps", config.norm_epsilon);
  check(config, name);
  return config;
}

BertConfig open_bert_config(const std::filesystem::path& path) {
  return parse_bert_config(text_of(MappedFile(path).bytes()), path.string());
}

}  // namespace lowtide

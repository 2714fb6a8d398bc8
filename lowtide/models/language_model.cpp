#include "lowtide/models/language_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/models/lstm_language_model.h"
#include "lowtide/models/transformer_language_model.h"

namespace lowtide {

std::vector<std::string> language_model_names() { return {"lstm", "transformer"}; }

std::shared_ptr<LanguageModel> make_language_model(const std::string& name,
                                                   const LanguageModelOptions& options) {
  if (name == "lstm") return std::make_shared<LstmLanguageModel>(options);
  if (name == "transformer") return std::make_shared<TransformerLanguageModel>(options);
  const std::vector<std::string> names = language_model_names();
  throw UserError(fmt::format("model is '{}'{}; expected one of {} for text", name,
                              did_you_mean(name, {names.begin(), names.end()}), fmt::join(names, ", ")));
}

}  // namespace lowtide

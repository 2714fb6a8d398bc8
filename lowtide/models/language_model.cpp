#include "lowtide/models/language_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowtide/base/error.h"
#include "lowtide/models/lstm_language_model.h"
#include "lowtide/models/transformer_language_model.h"

namespace lowtide {

std::vector<std::string> language_model_names() { return {"lstm", "transformer"}; }

std::shared_ptr<LanguageModel> make_language_model(const std::string& name,
                                                   const LanguageModelOptions& options) {
  if (name == "lstm") return std::make_shared<LstmLanguageModel>(options);
  if (name == "transformer") return std::make_shared<TransformerLanguageModel>(options);
  throw UserError(fmt::format("model is '{}'; expected one of {} for text", name,
                              fmt::join(language_model_names(), ", ")));
}

}  // namespace lowtide

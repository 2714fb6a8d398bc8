#include "lowtide/export/export_network.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/export/families.h"

namespace lowtide {

OnnxGraph export_network(const torch::nn::Module& model, const std::string& name,
                         const ExportOptions& options, std::int64_t length) {
  const at::NoGradGuard no_grad;
  NetworkWriter writer(name, options);
  if (const auto* images = dynamic_cast<const ImageModel*>(&model)) {
    const std::optional<ImageLayout> layout = images->layout();
    if (!layout)
      throw UserError(
          fmt::format("{} does not say what it is made of (layout()), so it cannot be exported", name));
    write_image_model(writer, *layout);
  } else if (const auto* lstm = dynamic_cast<const LstmLanguageModel*>(&model)) {
    write_lstm_language_model(writer, *lstm);
  } else if (const auto* transformer = dynamic_cast<const TransformerLanguageModel*>(&model)) {
    write_transformer_language_model(writer, *transformer, length);
  } else if (const auto* bert = dynamic_cast<const BertClassifier*>(&model)) {
    write_bert(writer, *bert);
  } else if (const auto* detector = dynamic_cast<const RetinaNet*>(&model)) {
    write_retinanet(writer, *detector);
  } else {
    throw UserError(fmt::format(
        "{} cannot be exported; networks for images, text, pairs of sentences and detection can", name));
  }
  return writer.graph.graph();
}

}  // namespace lowtide

#pragma once

#include <filesystem>
#include <string>

#include "lowtide/models/bert.h"

namespace lowtide {

// The name of a parameter of BertClassifier in published files of weights, but for the prefix `bert.`: layer3.expand.bias
// is encoder.layer.3.intermediate.dense.bias.
std::string published_name(const std::string& parameter);

// Fills the model from a safetensors file with published names, with or without the prefix `bert.` and with the old names
// of a normalisation's parameters, gamma and beta. A classifier that is not in the file keeps the weights that it has. A
// tensor that is missing, or of another shape, is a UserError.
void load_bert_weights(BertClassifier& model, const std::filesystem::path& path);

}  // namespace lowtide

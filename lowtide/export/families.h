#pragma once

#include "lowtide/export/network_writer.h"
#include "lowtide/models/bert.h"
#include "lowtide/models/image_model.h"
#include "lowtide/models/lstm_language_model.h"
#include "lowtide/models/retinanet.h"
#include "lowtide/models/transformer_language_model.h"

// One function for each family of networks, which walks it as its forward pass does.

namespace lowtide {

void write_image_model(NetworkWriter& writer, const ImageLayout& layout);
void write_lstm_language_model(NetworkWriter& writer, const LstmLanguageModel& model);
void write_transformer_language_model(NetworkWriter& writer, const TransformerLanguageModel& model,
                                      std::int64_t length);
void write_bert(NetworkWriter& writer, const BertClassifier& model);
void write_retinanet(NetworkWriter& writer, const RetinaNet& model);

}  // namespace lowtide

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

struct SideRange {
  int least = 0, most = 0;
};

// What a part of a data set holds: the images to train on, the text to test by.
struct DataPart {
  std::string name{};  // train, valid, test
  std::string item_name{};
  std::int64_t items = 0;                                       // that are whole
  std::string counted{};                                        // of what the classes are counted
  std::vector<std::pair<std::string, std::int64_t>> classes{};  // by label; empty where there are none
  SideRange widths{}, heights{};                                // of images
  std::string note{};                                           // whatever else there is to say
  std::vector<std::string> damaged{};                           // items that cannot be read, with the reason
  std::string failure{};                                        // why the part as a whole cannot be
};

struct DataCheck {
  std::vector<DataPart> parts;

  std::size_t damaged() const;  // items
  bool failed() const;          // a part as a whole
};

// Reads all that training and evaluation by this recipe would, every image too.
DataCheck check_data(const Recipe& recipe);

Json to_json(const DataCheck& check);
std::string to_text(const DataCheck& check);

}  // namespace lowtide

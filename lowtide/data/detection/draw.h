#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lowtide/data/detection/boxes.h"
#include "lowtide/data/image.h"

namespace lowtide {

using Colour = std::array<std::uint8_t, 3>;

// One that is easily told from those of the neighbours.
Colour colour_of(std::int32_t label);

// Draws the edges of a box, so many pixels wide, within the box; what lies outside the image is left out.
void draw_box(Image& image, const BoundingBox& box, const Colour& colour, int thickness);

// Writes a line of text on a ground of the colour, above (x, y) or, where there is no room, below. Letters are five
// pixels wide, times `size`; capitals are written small, and what is no letter, digit, point or hyphen as a space.
void draw_label(Image& image, int x, int y, std::string_view text, const Colour& colour, int size);

}  // namespace lowtide

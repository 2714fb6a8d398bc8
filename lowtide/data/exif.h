#pragma once

#include "lowtide/data/image.h"
#include "lowtide/io/file.h"

namespace lowtide {

// How a camera was held: EXIF's orientation of a JPEG file, 1 (the first row is the upper edge) to 8. 1 also where
// there is none, or none that can be read: the pixels are whole without it. Reads the segments before the picture.
int exif_orientation(ByteSpan jpeg);

// The image as it is to be seen: mirrored, turned, or both.
Image turned_upright(Image image, int orientation);

}  // namespace lowtide

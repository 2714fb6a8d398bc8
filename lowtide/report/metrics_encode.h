#pragma once

#include <string>

#include "lowtide/base/json.h"
#include "lowtide/report/metrics.h"

namespace lowtide {

// Logged numbers as the page reads them, every one exactly as it was logged: a gzip stream of a JSON header,
// a newline, and the columns' bytes, table by table. The header is `about` with the tables added:
//   {…, "tables": [{"split": "train", "rows": 500, "columns": [{"name": "loss", "encoding": "f32", …}, …]}, …]}
//
//   dictionary   "values": those there are; a 16-bit index a row
//   f32, f64     IEEE numbers, of 32 bits where they lose nothing; "differences": how often each bit pattern, taken as a
//                whole number, had the one of the row before subtracted, modulo 2^32 or 2^64; then zigzag, which has
//                the sign in the lowest bit
//
// Multi-byte numbers are little-endian and stored by planes, first the lowest byte of every row, then the next: bytes
// that vary little lie together, and shrink to almost nothing.
std::string encode_metrics(const Metrics& metrics, Json about = Json::object());

std::string base64(std::string_view bytes);

}  // namespace lowtide

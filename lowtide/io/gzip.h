#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/io/file.h"

namespace lowtide {

// Whether the bytes begin as a gzip file does (RFC 1952: 1f 8b).
bool is_gzip(ByteSpan bytes);

// Decompresses a gzip file of one or more members. A stream that is cut short, damaged, followed by something
// else or larger than `max_bytes` once decompressed is a UserError that begins with `name`. `max_bytes`
// bounds the memory: a kilobyte of gzip can stand for a megabyte of zeros.
std::vector<std::byte> decompress_gzip(ByteSpan compressed, const std::string& name, std::size_t max_bytes);

// The content of a file that is gzip or plain, told by its first bytes and not by its name. `whole_size` says from
// the first `front_bytes` of the content, or what there is of them, how large it may be at most: no more than that is
// decompressed.
std::vector<std::byte> read_maybe_gzip(const std::filesystem::path& path, std::size_t front_bytes,
                                       const std::function<std::size_t(ByteSpan front)>& whole_size);

// Hands the content of such a file to `take` piece by piece, without holding the whole in memory. Damage is
// found when it is reached: pieces before it have been taken by then.
void for_each_piece(const std::filesystem::path& path, const std::function<void(ByteSpan)>& take);

// A gzip file of these bytes, made at several hundred megabytes a second: it looks for runs of one byte and
// for bytes that are frequent, not for words that repeat.
std::string compress_gzip_runs(std::string_view bytes);

}  // namespace lowtide

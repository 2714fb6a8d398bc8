#pragma once

#include <cstdio>

#include "lowtide/io/file.h"

namespace lowtide {

// A process that was started without one of its three streams would give that number to the first file it opens, and
// print into it. Standard output is opened for reading: what is printed stays an error. What goes to stderr is dropped.
void occupy_standard_streams();

// Where a user said which file to write: as write_atomically, and `-` is standard output.
bool is_standard_output(const std::filesystem::path& path);
void write_output(const std::filesystem::path& path, const std::function<void(FileWriter&)>& produce);
void write_output(const std::filesystem::path& path, std::string_view text);

// Where the rest of what a command says goes, so that it is not in the middle of that file.
std::FILE* message_stream(const std::filesystem::path& path);

// For work of hours, which nobody need watch: what cannot be printed does not stop it. Once the reader has gone (with
// SIGPIPE ignored), or if there never was one, nothing more is printed; any other failure is in standard_output_error().
void print_or_drop(std::string_view text);

// Hands over all that was printed. 0, or the number of the error that lost some of it.
int standard_output_error();

}  // namespace lowtide

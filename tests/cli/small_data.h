#pragma once

#include <filesystem>

namespace lowtide {

// A text, pairs of sentences, and a graph, each small and made up.
void write_text(const std::filesystem::path& folder);
void write_pairs(const std::filesystem::path& folder);
void write_papers(const std::filesystem::path& folder);

}  // namespace lowtide

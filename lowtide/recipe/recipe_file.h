#pragma once

#include <CLI/CLI.hpp>
#include <istream>
#include <string>
#include <vector>

namespace lowtide {

constexpr std::size_t kMaxRecipeBytes = std::size_t{1} << 20;

// Of an option that names a recipe file: a pipe by name, which might be waited for without end. One that a shell
// makes, <(command), lies under /dev and is read. Empty where there is no problem, as CLI11 wants it.
std::string recipe_path_problem(const std::string& path);

// Reads recipe files as TOML (toml.io), by toml++: CLI11's own reader takes a # within quotes for a comment, knows no
// escapes and passes over a key that is given twice. What is wrong is a CLI::ConfigError with the line.
class RecipeFile final : public CLI::Config {
 public:
  // The app's options are the keys; the app must outlive this.
  explicit RecipeFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  std::string to_flag(const CLI::ConfigItem& item) const override;
  std::string to_config(const CLI::App* app, bool defaults, bool descriptions,
                        std::string prefix) const override;

 private:
  const CLI::App& app_;
};

}  // namespace lowtide

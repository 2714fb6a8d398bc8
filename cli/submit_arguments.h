#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "lowtide/study/slurm.h"

namespace lowtide {

// Where the runs of a study are trained, if not by this process.
struct SubmitArguments {
  std::string to;  // slurm, none; empty: here
  SlurmOptions slurm;
};

void add_submit_options(CLI::App& app, SubmitArguments& arguments);

// After parsing. UserError for what does not go together.
void check_submit_options(const CLI::App& app, const SubmitArguments& arguments);

// Hands a study that lies in its folder over to whom it is for, and says how it goes on.
void submit(const SubmitArguments& arguments, const Study& study, const std::string& folder);

}  // namespace lowtide

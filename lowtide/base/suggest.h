#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

// " (did you mean 'train'?)" for a word that is part of a known one, or nearly one; nothing for any other. To follow the
// word in a message.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known);

// The words of "sgd|adam|adamw": how choices are written in help and in tables of options.
std::vector<std::string_view> choices_in(std::string_view choices);

// UserError unless the value is one of the choices: "split is 'tets' (did you mean 'test'?); expected one of test, valid".
void expect_choice(std::string_view option, std::string_view value, std::string_view choices);

}  // namespace lowtide

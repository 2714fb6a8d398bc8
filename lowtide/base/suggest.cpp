#include "lowtide/base/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

constexpr std::size_t kLongestWord = 64;
constexpr std::size_t kMostSuggestions = 3;  // more help nobody
constexpr std::size_t kShortestPart = 3;     // of a longer word

// Flags are compared by what follows their dashes, everything without regard to case.
std::string plain(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// How many letters to insert, leave out, replace or swap with their neighbour (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_before(b.size() + 1), before(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_before.swap(before);
    before.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Those that begin with the word, or else those that have it within.
std::vector<std::string_view> containing(const std::string& word,
                                         const std::vector<std::string_view>& known) {
  std::vector<std::string_view> beginning, found;
  if (word.size() < kShortestPart) return found;
  for (const std::string_view candidate : known) {
    const std::size_t at = plain(candidate).find(word);
    if (at != std::string::npos) found.push_back(candidate);
    if (at == 0) beginning.push_back(candidate);
  }
  return beginning.empty() ? found : beginning;
}

// Those with the smallest distance, if a third of the word is right at least.
std::vector<std::string_view> nearest(const std::string& word, const std::vector<std::string_view>& known) {
  std::vector<std::string_view> found;
  std::size_t least = (word.size() + 2) / 3;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(word, plain(candidate));
    if (distance > least || distance >= word.size()) continue;
    if (distance < least) found.clear();
    least = distance;
    found.push_back(candidate);
  }
  return found;
}

bool suits(const std::vector<std::string_view>& found) {
  return !found.empty() && found.size() <= kMostSuggestions;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known) {
  if (word.size() > kLongestWord) return "";
  const std::string given = plain(word);
  std::vector<std::string_view> found = containing(given, known);
  if (!suits(found)) found = nearest(given, known);
  if (!suits(found)) return "";
  std::string text;
  for (std::size_t i = 0; i < found.size(); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == found.size() ? " or " : ", ", found[i]);
  return fmt::format(" (did you mean {}?)", text);
}

std::vector<std::string_view> choices_in(std::string_view choices) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at <= choices.size();) {
    const std::size_t end = std::min(choices.find('|', at), choices.size());
    words.push_back(choices.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

void expect_choice(std::string_view option, std::string_view value, std::string_view choices) {
  const std::vector<std::string_view> allowed = choices_in(choices);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw UserError(fmt::format("{} is '{}'{}; expected one of {}", option, value, did_you_mean(value, allowed),
                              fmt::join(allowed, ", ")));
}

}  // namespace lowtide

#include "tests/cli/small_data.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace lowtide {

namespace fs = std::filesystem;

void write_text(const fs::path& folder) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("w{}{}", i * i % 17, i % 5 == 4 ? "\n" : " ");
  fs::create_directories(folder);
  for (const char* part : {"train", "valid", "test"})
    std::ofstream(folder / fmt::format("ptb.{}.txt", part)) << text;
}

void write_pairs(const fs::path& folder) {
  std::string pairs = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n";
  const char* labels[]{"NEUTRAL", "ENTAILMENT", "CONTRADICTION"};
  // 22 is 2 more than a batch's multiple: the last batch of an epoch has fewer pairs than there are shards.
  for (int i = 0; i < 22; ++i)
    pairs += fmt::format("{}\ta w{} {}\tc w{}\t3.0\t{}\n", i + 1, i * 7 % 9, i % 3 == 0 ? "b b" : "", i % 9,
                         labels[i % 3]);
  fs::create_directories(folder);
  for (const char* part : {"train", "trial", "test_annotated"})
    std::ofstream(folder / fmt::format("SICK_{}.txt", part)) << pairs;
  std::ofstream vocabulary(folder / "vocab.txt");
  vocabulary << "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n";
  for (int i = 0; i < 9; ++i) vocabulary << "w" << i << "\n";
}

void write_papers(const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream content(folder / "small.content"), cites(folder / "small.cites");
  for (int paper = 0; paper < 60; ++paper) {
    content << "p" << paper;
    for (int word = 0; word < 12; ++word)
      content << "\t" << (word % 3 == paper % 3 || (word + paper) % 5 == 0);
    content << "\tclass" << paper % 3 << "\n";
    for (const int other : {paper + 3, paper * 7, paper + 1})
      cites << "p" << other % 60 << "\tp" << paper << "\n";
  }
}

}  // namespace lowtide
